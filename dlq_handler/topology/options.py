"""Settings of the bindings that dlq-handler keeps, and of the canary messages that check them."""

from typing import Annotated

from pydantic import Field

from dlq_handler.options import OwnSection, Seconds

LONGEST_ROUND_SECONDS = 10.0
LONGEST_PAUSE_SECONDS = 30.0
ROUND_SIZE = 40
"""Number of canaries in a round."""


class TopologyOptions(OwnSection):
    """Exchanges, queues and bindings that dlq-handler applies."""

    reapply_interval_seconds: Annotated[Seconds, Field(ge=1, le=86_400)] = 600
    """Interval at which all bindings are applied again, in seconds. It repairs a broker that has lost them."""


class CanaryOptions(OwnSection):
    """Canaries, which expire with a worker's routing key and must arrive in the intake queue."""

    enabled: bool = True
    """Send canaries. They need the exchange `dlq_handler.canary` and a queue, which dlq-handler declares. When false, a
    lost binding shows only by missing dead letters."""
    interval_seconds: Annotated[Seconds, Field(ge=1, le=86_400)] = 60
    """Interval between two canaries of a worker, in seconds. In fleets of hundreds it is longer."""
    ttl_ms: Annotated[int, Field(ge=100, le=3_600_000)] = 5000
    """Time that a canary waits in its queue before it expires, in milliseconds. Fixed when the queue is declared:
    delete `dlq_handler.canary.queue` to change it."""
    limit_seconds: Annotated[Seconds, Field(ge=1, le=3600)] = 30
    """Time after its expiry at which a canary that has not arrived is lost, in seconds."""

    @property
    def round_seconds(self) -> float:
        """Interval between two rounds: a fleet of thousands gets its canaries a few at a time."""
        return min(LONGEST_ROUND_SECONDS, self.interval_seconds / 2)

    @property
    def longest_pause_seconds(self) -> float:
        """Longest pause after a round that took long. Two intervals without a canary would prove nothing."""
        return min(LONGEST_PAUSE_SECONDS, self.interval_seconds)

    def fresh_seconds(self, workers: int, ttl_seconds: float) -> float:
        """A canary older than this proves nothing: two others should have followed it."""
        rounds = -(-workers // ROUND_SIZE)
        period = max(self.interval_seconds, rounds * self.round_seconds)
        return 2 * period + ttl_seconds + self.limit_seconds
