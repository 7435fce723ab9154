"""`./run demo`: a stock Attune whose workers disappear, in five acts, with an independent auditor."""
