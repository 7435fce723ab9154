"""A stage: private RabbitMQ and PostgreSQL, a reference Attune and the sidecar, each its own process.

Demo and tests use `stage.Stage`. `python -m sandbox.stage` is `./run up` and the commands around it: a keeper process
holds the stage, and the other commands send it requests.
"""
