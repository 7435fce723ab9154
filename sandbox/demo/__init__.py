"""`./run demo`: a stock Attune whose workers vanish, in five acts, audited by somebody who knows nothing of us."""
