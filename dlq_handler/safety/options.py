"""Settings of the brake and of the safety gate."""

from typing import Annotated

from pydantic import Field

from dlq_handler.options import OwnSection, Seconds


class BrakeOptions(OwnSection):
    """Stops a mass failure. One state for all replicas."""

    max_decisions_per_minute: Annotated[int, Field(ge=0, le=10_000_000)] = 10_000
    """Maximum number of executions that all replicas together end in 60 seconds before the brake trips. Each batch that
    runs at that moment may exceed it once, by its own size (`batch.size`, `monitor.batch_size`). Once the brake has
    tripped the limit is exact. 0 means no limit."""
    hold_seconds: Annotated[Seconds, Field(ge=0, le=7 * 86_400)] = 600
    """Seconds for which dlq-handler then ends nothing, before it goes on at that rate. 0 means until `dlq-handler brake
    release`."""

    @property
    def is_on(self) -> bool:
        return self.max_decisions_per_minute > 0


class GateOptions(OwnSection):
    """No decisions while what dlq-handler reads from the database is unreliable."""

    unknown_percent: Annotated[int, Field(ge=0, le=100)] = 50
    """Percentage of unknown executions, among 20 or more dead letters, at which dlq-handler stops: it may use the wrong
    database. 0 disables the check."""
