"""The auditor: an independent process that reports what really happened.

It knows the sandbox's Attune and nothing of the sidecar: a queue of its own collects the notices, its own SQL reads the
rows. `python -m sandbox.auditor`.
"""
