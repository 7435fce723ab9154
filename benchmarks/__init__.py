"""Side-by-side measurements: ours, the naive handler and the raw limits, in one run (`./run bench`)."""
