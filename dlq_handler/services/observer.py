"""What the services tell about themselves. They know nothing of Prometheus; `surface/metrics.py` listens.

Most of it is told when it happens. Leader, gate and brake are to be asked instead, whenever somebody wants to know:
their answer changes by the mere passing of time, and one who hangs in a question to the database tells nobody.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dlq_handler.domain.availability import Availability
from dlq_handler.domain.brake import BrakeMode
from dlq_handler.domain.gate import GateCause
from dlq_handler.domain.judge_canary import WorkerCanary
from dlq_handler.domain.reconcile import Finding
from dlq_handler.domain.stale_verdict import StaleOutcome
from dlq_handler.domain.verdict import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class BrakeSeen:
    mode: BrakeMode
    ended_last_minute: int
    """By all replicas."""


class Observer:
    """Hears every fact and does nothing with it."""

    def letter_judged(self, reason: str, outcome: Outcome, latency_seconds: float | None) -> None:
        """One letter is on record. The latency is from its death to the commit, None when nobody knows its death."""

    def letter_rejudged(self, outcome: Outcome) -> None:
        """A letter that was on record already was judged again."""

    def batch_committed(self, letters: int, held_over: int, seconds: float) -> None:
        """One transaction is through."""

    def letter_repeated(self, count: int) -> None:
        """Letters came that were on record already."""

    def notices_settled(self, outcome: str, count: int) -> None:
        """The broker answered for that many notices, or we withheld them. Game days are told of nowhere."""

    def notices_announced(self, took_seconds: Sequence[float]) -> None:
        """Confirmed notices are marked as such; each value is from the transaction that wrote it to its mark."""

    def canaries_arrived(self, count: int) -> None:
        """Canaries were taken from the intake queue and settled."""

    def reconnected(self, link: str) -> None:
        """A link that was there before is there again: "database", or what a broker connection is for."""

    def loop_lagged(self, seconds: float) -> None:
        """So much too late did the event loop call somebody whose time had come."""

    def intake_reopened(self) -> None:
        """The consumer was registered anew."""

    def intake_seen(self, messages: int | None, consumers: int | None) -> None:
        """Messages in the intake queue, ready or unacknowledged, and its consumers; None: unknown."""

    def oldest_letter_seen(self, age_seconds: float | None) -> None:
        """Since the oldest letter in our hands died, 0 when no letter waits anywhere; None when nobody knows."""

    def leaked_slots_seen(self, count: int | None) -> None:
        """Slots that ended executions hold; None when the database cannot be asked."""

    def outbox_seen(
        self, pending: int | None, oldest_age_seconds: float | None, unroutable: int | None
    ) -> None:
        """What waits in the outbox; None when the database cannot be asked."""

    def brake_built(self, seen: Callable[[], BrakeSeen | None]) -> None:
        """There is a brake, and this tells its state at any moment; None when nobody can."""

    def brake_tripped(self) -> None:
        """Some replica tripped the brake since we look at it."""

    def gate_built(self, is_closed: Callable[[GateCause], bool | None]) -> None:
        """There is a gate, and this tells at any moment whether a cause keeps it closed; None when nobody can."""

    def workers_seen(self, counts: Mapping[Availability, int] | None) -> None:
        """How many workers there are of each kind, history left out; None when the database cannot be asked."""

    def unattended_queues_seen(self, count: int | None) -> None:
        """Worker queues with messages and without a consumer; None when that cannot be told."""

    def leadership_built(self, is_leader: Callable[[], bool]) -> None:
        """This tells at any moment whether this replica is the one that sweeps."""

    def stale_found(self, original_status: str, outcome: StaleOutcome) -> None:
        """One decision of the monitor about one execution is on record."""

    def sweep_finished(self, seconds: float) -> None:
        """The monitor has gone through all executions that may be stale, or was cut short."""

    def reconciled(self, finding: Finding, count: int) -> None:
        """Executions were found that somebody had lost sight of."""

    def canaries_seen(self, canaries: Sequence[WorkerCanary] | None) -> None:
        """What the canary says of each worker; None when that cannot be told."""

    def notified(self, *, is_delivered: bool) -> None:
        """The webhook took a message, or did not."""
