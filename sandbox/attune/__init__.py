"""A small reference of stock Attune: its schema, its topology, its services, defects included.

Tests, benchmark and demo run the sidecar beside it. It imports nothing of the sidecar, so that it can witness
against it. Each service takes URLs, has start() and close(), and declares only the queues it consumes.
"""
