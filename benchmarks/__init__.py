"""Ours beside the naive handler and the raw limits, in one run on private servers: `./run bench`."""
