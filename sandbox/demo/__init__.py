"""`./run demo`: a stock Attune whose workers disappear, in six acts, with an independent auditor."""
