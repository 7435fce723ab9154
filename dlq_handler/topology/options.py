"""Settings of the bindings that dlq-handler keeps, and of the canary messages that check them."""

from typing import Annotated

from pydantic import Field

from dlq_handler.options import OwnSection, Seconds

LONGEST_ROUND_SECONDS = 5.0
ROUND_SIZE = 20
"""Number of canaries in a round."""


class TopologyOptions(OwnSection):
    """How exchanges, queues and bindings are kept."""

    reapply_interval_seconds: Annotated[Seconds, Field(ge=1, le=86_400)] = Field(
        default=600,
        description=(
            "Every how many seconds all bindings are made again, which repairs a broker that was wiped."
        ),
    )


class CanaryOptions(OwnSection):
    """Probes that die with a worker's routing key, to see whether its letters would arrive."""

    enabled: bool = Field(
        default=True,
        description=(
            "Whether probes are sent; they need an exchange `dlq_handler.canary` and a queue of our own, which are "
            "made on the broker. When false, a binding that is lost shows only when letters do not come."
        ),
    )
    interval_seconds: Annotated[Seconds, Field(ge=1, le=86_400)] = Field(
        default=60,
        description="Every how many seconds each worker gets a probe; in fleets of hundreds it takes longer.",
    )
    ttl_ms: Annotated[int, Field(ge=100, le=3_600_000)] = Field(
        default=5000,
        description=(
            "How long, in milliseconds, a probe waits in its queue before it dies; fixed when the queue is made: "
            "delete `dlq_handler.canary.queue` to have another one."
        ),
    )
    limit_seconds: Annotated[Seconds, Field(ge=1, le=3600)] = Field(
        default=30,
        description="Seconds after which a probe that died and did not arrive counts as lost.",
    )

    @property
    def round_seconds(self) -> float:
        """Interval between two rounds: a fleet of thousands gets its canaries a few at a time."""
        return min(LONGEST_ROUND_SECONDS, self.interval_seconds / 2)

    def fresh_seconds(self, workers: int, ttl_seconds: float) -> float:
        """A canary older than this proves nothing: two others should have followed it."""
        rounds = -(-workers // ROUND_SIZE)
        period = max(self.interval_seconds, rounds * self.round_seconds)
        return 2 * period + ttl_seconds + self.limit_seconds
