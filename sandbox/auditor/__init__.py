"""The auditor: an independent process that reports what really happened.

It knows the sandbox's Attune and nothing of the sidecar: its own queue collects the completion events, its own SQL
reads the rows. `python -m sandbox.auditor`.
"""
