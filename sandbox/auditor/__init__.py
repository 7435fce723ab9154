"""The auditor: a process of its own that believes nobody and says what really happened.

It knows the sandbox's Attune and nothing of the sidecar: a queue of its own collects the notices, its own SQL reads the
rows. `python -m sandbox.auditor`.
"""
