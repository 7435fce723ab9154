"""`./run demo`: a stock Attune whose workers vanish, first without the sidecar, then with it, told as it happens."""
