"""A stage: private RabbitMQ and PostgreSQL, a reference Attune and the sidecar, each its own process.

`stage.Stage` for whoever plays on it (demo, tests); `python -m sandbox.stage` is `./run up` and what
goes with it: a keeper process holds the stage, and the other commands ask it.
"""
