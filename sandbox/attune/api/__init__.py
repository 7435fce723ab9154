"""Attune's HTTP API, as far as executions, workers and lines go. It publishes and consumes nothing."""
