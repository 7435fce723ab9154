"""Exchanges, queues and bindings that dead letters need: blueprint, keeper, check, canary."""
