"""The canary: a test message that expires on purpose, with the routing key of a real worker. Pure.

It is published to an exchange of dlq-handler's own, expires in a queue of its own, and reaches the dead-letter exchange
with that worker's key. So it takes the same binding as the worker's dead letters, and never touches the worker's queue.
The intake recognizes it by its type and by the queue where it died (`DeadLetter.canary_id`), and only records that it
was received.

The newest conclusive canary of a worker decides whether canaries arrive. A missing canary proves a broken route only if
nothing else explains it: this replica has consumed since it was sent, no other consumer can have taken it, and no
message waits before it. Everything else is "unknown", never "ok". Ages are by the database's clock.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from dlq_handler.host.messages import envelope, rfc3339
from dlq_handler.topology.options import CanaryOptions

CANARY_EXCHANGE = "dlq_handler.canary"
CANARY_QUEUE = "dlq_handler.canary.queue"
CANARY_MESSAGE_TYPE = "DlqHandlerCanary"

# Whatever goes wrong with their expiry, no more of them ever pile up on the host's broker.
MOST_QUEUED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryPlan:
    """How the queue is declared. It sets no key of its own for what dies: the worker's must be kept."""

    dead_letter_exchange: str
    ttl_ms: int

    @property
    def queue_arguments(self) -> Mapping[str, int | str]:
        return {
            "x-dead-letter-exchange": self.dead_letter_exchange,
            "x-message-ttl": self.ttl_ms,
            "x-max-length": MOST_QUEUED,
        }


def canary_body(probe_id: UUID, *, worker_id: int, queue: str, sent_by: str, now: datetime) -> bytes:
    """In Attune's envelope: a stock consumer that meets it reads the type, and skips it."""
    payload = {"worker_id": worker_id, "queue": queue, "sent_by": sent_by}
    return envelope(CANARY_MESSAGE_TYPE, probe_id, probe_id, payload, rfc3339(now))


class CanaryState(StrEnum):
    OK = "ok"
    LOST = "lost"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One canary."""

    worker_id: int
    ttl_seconds: float
    created_seconds_ago: float
    sent_seconds_ago: float | None
    """None: the broker never confirmed it, so it is unknown whether it was sent."""
    took_seconds: float | None
    """From sending to arrival; None when it did not arrive (yet)."""

    def is_overdue(self, limit_seconds: float) -> bool:
        return self.sent_seconds_ago is not None and self.sent_seconds_ago > self.ttl_seconds + limit_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeView:
    """The intake queue of the canaries, as this process observes it."""

    consuming_seconds: float
    """How long this process has consumed it without a break; 0: it does not."""
    waiting: int | None
    """Messages ready in it; None: the broker cannot be asked."""
    others: tuple[str, ...] = ()
    """Consumers that are not dlq-handler replicas."""
    unseen: int = 0
    """Number of unidentified consumers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCanary:
    """The result of the canary for one worker's binding."""

    worker_id: int
    state: CanaryState
    explanation: str
    passes: bool = False
    """No action is needed: the next canary decides."""
    took_seconds: float | None = None
    seen_seconds_ago: float | None = None
    """When one arrived last, whatever became of later ones."""


def inconclusive_explanation(view: IntakeView, queue: str) -> str | None:
    """Why all canaries are inconclusive at the moment; None: they are not."""
    if view.consuming_seconds <= 0:
        return f"this replica does not consume {queue} at the moment"
    if view.waiting is None:
        return "the number of messages in the intake queue is unknown"
    if view.others:
        others = ", ".join(map(repr, view.others[:5]))
        return f"{others} also consume(s) {queue} and may have received the canaries"
    return None


def decide_canaries(
    probes: Iterable[Probe], workers: Collection[int], view: IntakeView, options: CanaryOptions, *, queue: str
) -> list[WorkerCanary]:
    """One answer for each worker, by id."""
    by_worker: dict[int, list[Probe]] = {worker: [] for worker in sorted(workers)}
    for probe in sorted(probes, key=lambda probe: probe.created_seconds_ago):
        if probe.worker_id in by_worker:
            by_worker[probe.worker_id].append(probe)
    inconclusive = inconclusive_explanation(view, queue)
    return [
        _decide(worker, sent, inconclusive=inconclusive, view=view, options=options, workers=len(by_worker))
        for worker, sent in by_worker.items()
    ]


def proven(probes: Collection[Probe]) -> list[Probe]:
    """The conclusive canaries, for a program that does not know how long a replica has consumed.

    A canary that arrived shows that a replica consumed after all canaries sent before it: those would have arrived
    earlier. Canaries sent later are inconclusive.
    """
    newest_seen = min(
        (
            one.sent_seconds_ago
            for one in probes
            if one.took_seconds is not None and one.sent_seconds_ago is not None
        ),
        default=float("inf"),
    )
    return [
        one
        for one in probes
        if one.took_seconds is not None
        or (one.sent_seconds_ago is not None and one.sent_seconds_ago > newest_seen)
    ]


@dataclass(frozen=True, slots=True)
class _Doubt:
    """Why the state of one worker is unknown, and whether that passes without action."""

    explanation: str
    passes: bool = True


def _decide(
    worker: int,
    newest_first: Sequence[Probe],
    *,
    inconclusive: str | None,
    view: IntakeView,
    options: CanaryOptions,
    workers: int,
) -> WorkerCanary:
    seen = next((probe for probe in newest_first if probe.took_seconds is not None), None)

    def answer(state: CanaryState, explanation: str, *, passes: bool = False) -> WorkerCanary:
        return WorkerCanary(
            worker_id=worker,
            state=state,
            explanation=explanation,
            passes=passes,
            took_seconds=seen.took_seconds if seen is not None else None,
            seen_seconds_ago=_seen_seconds_ago(seen),
        )

    if inconclusive is not None:
        return answer(CanaryState.UNKNOWN, inconclusive)
    doubt = _Doubt("no conclusive canary yet" if not newest_first else "none has arrived yet")
    for probe in newest_first:
        if probe.created_seconds_ago > options.fresh_seconds(workers, probe.ttl_seconds):
            # Those before it are older still.
            is_any_conclusive = seen is not None or any(
                one.is_overdue(options.limit_seconds)
                and one.sent_seconds_ago is not None
                and _excuse(one.sent_seconds_ago, view) is None
                for one in newest_first
            )
            doubt = _Doubt(
                "the last conclusive canary is too old" if is_any_conclusive else "no conclusive canary yet"
            )
            break
        if probe.took_seconds is not None:
            return answer(CanaryState.OK, f"arrived {probe.took_seconds:.1f} s after it was sent")
        if not probe.is_overdue(options.limit_seconds) or probe.sent_seconds_ago is None:
            continue
        excuse = _excuse(probe.sent_seconds_ago, view)
        if excuse is None:
            limit = probe.ttl_seconds + options.limit_seconds
            explanation = f"sent {probe.sent_seconds_ago:.0f} s ago and did not arrive within {limit:g} s"
            return answer(CanaryState.LOST, explanation)
        doubt = excuse
    return answer(CanaryState.UNKNOWN, doubt.explanation, passes=doubt.passes)


def _excuse(sent_seconds_ago: float, view: IntakeView) -> _Doubt | None:
    """Another explanation than a broken route for a missing canary."""
    if sent_seconds_ago > view.consuming_seconds:
        return _Doubt(f"this replica has consumed without a break for only {view.consuming_seconds:.0f} s")
    if view.unseen:
        return _Doubt(f"{view.unseen} unidentified consumer(s) may have taken it", passes=False)
    if view.waiting:
        return _Doubt(f"{view.waiting} dead letter(s) wait in the intake queue, perhaps before it")
    return None


def _seen_seconds_ago(probe: Probe | None) -> float | None:
    if probe is None or probe.took_seconds is None or probe.sent_seconds_ago is None:
        return None
    return max(0.0, probe.sent_seconds_ago - probe.took_seconds)


def choose_due(
    workers: Collection[int], probes: Iterable[Probe], *, interval_seconds: float, most: int
) -> list[int]:
    """Workers that get a canary now: those whose last one is longest ago first, and at most this many."""
    last: dict[int, float] = {}
    for probe in probes:
        last[probe.worker_id] = min(last.get(probe.worker_id, float("inf")), probe.created_seconds_ago)
    ages = {worker: last.get(worker, float("inf")) for worker in workers}
    due = [worker for worker, age in ages.items() if age >= interval_seconds]
    return sorted(due, key=lambda worker: (-ages[worker], worker))[:most]


def worst_of(canaries: Collection[WorkerCanary]) -> CanaryState:
    """Unknown without workers."""
    states = {canary.state for canary in canaries}
    for state in (CanaryState.LOST, CanaryState.UNKNOWN):
        if state in states:
            return state
    return CanaryState.OK if canaries else CanaryState.UNKNOWN


def count_by_state(canaries: Iterable[WorkerCanary]) -> Mapping[CanaryState, int]:
    counts = dict.fromkeys(CanaryState, 0)
    for canary in canaries:
        counts[canary.state] += 1
    return counts


def longest(seconds: Iterable[float | None]) -> float | None:
    """The greatest duration of those that are known; None if none is."""
    return max((one for one in seconds if one is not None), default=None)


def describe_canaries(canaries: Collection[WorkerCanary]) -> str:
    """One sentence about those in the worst state, with one reason: one that does not pass by itself, if there is."""
    if not canaries:
        return "there is no worker whose key is bound"
    worst = worst_of(canaries)
    of_that = [canary for canary in canaries if canary.state is worst]
    if worst is CanaryState.OK:
        slowest = max(canary.took_seconds or 0.0 for canary in of_that)
        return f"arrives with the key of each of {len(of_that)} worker(s), within {slowest:.1f} s"
    ids = ", ".join(str(canary.worker_id) for canary in of_that[:5])
    rest = f" and {len(of_that) - 5} more" if len(of_that) > 5 else ""
    explanation = min(of_that, key=lambda canary: canary.passes).explanation
    return f"{len(of_that)} of {len(canaries)} worker(s) ({ids}{rest}): {explanation}"


def only_wants_time(canaries: Collection[WorkerCanary]) -> bool:
    """All unknown results will be decided by the next canaries."""
    unclear = [canary for canary in canaries if canary.state is CanaryState.UNKNOWN]
    return bool(unclear) and all(canary.passes for canary in unclear)
