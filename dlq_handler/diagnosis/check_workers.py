"""Checks of the workers, one by one and as a whole. Pure.

A worker is unavailable when it sends no heartbeat and takes nothing any more. It hangs when it sends none and still
consumes its queue, or when it holds messages and starts none of them. Only heartbeat and broker together tell the two
apart.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from dlq_handler.diagnosis.check_replica import what_pauses
from dlq_handler.diagnosis.checks import Check
from dlq_handler.diagnosis.diagnosis import REPAIR_FIRST, Diagnosis, ok, problem, unknown
from dlq_handler.diagnosis.view import ObservedWorker, Unknown, UnknownCause, View
from dlq_handler.host.worker import WorkerStatus
from dlq_handler.text import in_units
from dlq_handler.workers.availability import Availability, is_silent_for_a_day

# From this share of its TTL on, a message that waits is about to expire.
NEARLY_EXPIRED = 0.8

# After a start or an outage of the database.
WAIT_FOR_HEARTBEATS = "Wait: it is known when heartbeats have been read for long enough."

_SHOWN = 10


def workers(view: View) -> Diagnosis:
    if isinstance(view.workers, Unknown):
        return unknown(Check.WORKERS, view.workers)
    reporting = [one for one in view.workers if not is_silent_for_a_day(one.registered.worker)]
    if not reporting:
        count = len(view.workers)
        return problem(
            Check.WORKERS,
            f"None of {count} registered workers reported within a day."
            if count
            else "No worker is registered.",
            "Start a worker. If some run, database.url and database.schema are not theirs.",
        )
    if not any(one.is_present for one in reporting):
        return _none_present(view, reporting)
    return _ignored_by_host(view, reporting) or ok(
        Check.WORKERS,
        f"{len(reporting)} of {len(view.workers)} registered workers reported within a day.",
        evidence=_count_by_state(reporting),
    )


def _none_present(view: View, reporting: Sequence[ObservedWorker]) -> Diagnosis:
    """Since the last one became unavailable, however long the others were before."""
    unsure = [one for one in reporting if one.standing.availability is Availability.UNKNOWN]
    if unsure:
        why = Unknown(f"{unsure[0].name}: {unsure[0].standing.explanation}", UnknownCause.TAKES_TIME)
        return unknown(Check.WORKERS, why, WAIT_FOR_HEARTBEATS, evidence=_count_by_state(reporting))
    since = max((at for one in reporting if (at := one.standing.unavailable_since)), default=None)
    hanging = sum(one.is_consumed for one in reporting)
    state = "unavailable" if not hanging else "hung" if hanging == len(reporting) else "unavailable or hung"
    lasts = "" if since is None else f" for {in_units((view.at - since).total_seconds())}"
    what = f"All {len(reporting)} workers have been {state}{lasts}"
    if len(reporting) == 1:
        what = f"{reporting[0].name} has been {state}{lasts}, and there is no other worker"
    return problem(
        Check.WORKERS,
        f"{what}; {_loss_of_all(view, reporting)}.",
        "Start the workers. Until then the scheduler rejects requests, or they end at their TTL.",
        since=since,
        evidence=[
            f"{one.name}: last heartbeat {in_units(one.silent_seconds)} ago"
            for one in sorted(reporting, key=lambda one: one.silent_seconds)[:_SHOWN]
        ],
    )


def _loss_of_all(view: View, reporting: Sequence[ObservedWorker]) -> str:
    """Includes requests that never reached a worker: no single worker's numbers have them."""
    counts = [one.ended_last_hour for one in reporting]
    ended = None if None in counts else sum(one or 0 for one in counts)
    waiting = (
        None
        if isinstance(view.requested, Unknown)
        else view.requested + sum(one.waiting for one in reporting)
    )
    wait = "an unknown number wait" if waiting is None else f"{waiting} {'waits' if waiting == 1 else 'wait'}"
    loss = f"dlq-handler ended {_count(ended, 'execution', 'executions')} in the last hour, {wait}"
    if isinstance(view.letters, Unknown):
        return loss
    paused_by = what_pauses(view)
    if paused_by is not None:
        return f"{loss}; how many the scheduler rejected is unknown, because the {paused_by.value} pauses the intake"
    declined, span = view.letters.declined, in_units(view.letters.span_seconds)
    return f"{loss}, the scheduler rejected {_count(declined, 'execution', 'executions')} in the last {span}"


def _count(count: int | None, one: str, many: str) -> str:
    return f"an unknown number of {many}" if count is None else f"{count} {one if count == 1 else many}"


def _ignored_by_host(view: View, reporting: Sequence[ObservedWorker]) -> Diagnosis | None:
    """Workers that work, and that the host marked inactive: its scheduler gives them nothing.

    The mark alone is harmless, as an orderly stop begins with it. Requests that were rejected because there was no
    worker prove that they are missed.
    """
    declined = 0 if isinstance(view.letters, Unknown) else view.letters.declined
    found = [
        one
        for one in reporting
        if one.registered.status == WorkerStatus.INACTIVE
        and one.is_present
        and one.is_on_time
        and one.is_consumed
    ]
    if not found or not declined:
        return None
    verb = "reports and consumes, but is" if len(found) == 1 else "report and consume, but are"
    subject = found[0].name if len(found) == 1 else f"{len(found)} workers"
    them, they = ("it", "it registers") if len(found) == 1 else ("them", "they register")
    rejected = _count(declined, "request was", "requests were")
    return problem(
        Check.WORKERS,
        f"{subject} {verb} inactive in Attune's worker table, so the scheduler gives {them} nothing; {rejected} "
        "rejected lately because there was no worker.",
        f"Restart {them}: {they} as active at the start, and no heartbeat does that later.",
        evidence=[
            f"{one.name}: inactive, last heartbeat {in_units(one.silent_seconds)} ago"
            for one in found[:_SHOWN]
        ],
        headline="Active workers are marked inactive and get no work",
    )


def _count_by_state(reporting: Sequence[ObservedWorker]) -> list[str]:
    return [
        f"{count} {state.value}"
        for state in Availability
        if (count := sum(one.standing.availability is state for one in reporting))
    ]


def unavailable(view: View) -> Diagnosis:
    check = Check.WORKER_UNAVAILABLE
    if isinstance(view.workers, Unknown):
        return unknown(check, view.workers)
    is_any_present = any(one.is_present for one in view.workers)
    found = [one for one in view.workers if _is_unavailable(one, is_any_present=is_any_present)]
    if not found:
        unsure = [one for one in _expected(view.workers) if one.standing.availability is Availability.UNKNOWN]
        if not unsure:
            return ok(check, "No worker that is missed is unavailable.")
        # It would be in vain to wait for the first heartbeat of a worker that never sent any.
        one = min(unsure, key=_has_reported)
        cause = UnknownCause.TAKES_TIME if _has_reported(one) else UnknownCause.REFUSED
        action = WAIT_FOR_HEARTBEATS if _has_reported(one) else REPAIR_FIRST
        return unknown(check, Unknown(f"{one.name}: {one.standing.explanation}", cause), action)
    oldest = max(found, key=lambda one: one.silent_seconds)
    lasts = in_units(_unavailable_seconds(oldest, view))
    present = sum(one.is_present for one in view.workers)
    what = f"{oldest.name} has been unavailable for {lasts}"
    if len(found) > 1:
        beside = f" and {present} {'is' if present == 1 else 'are'} available" if present else ""
        what = f"{len(found)} workers are unavailable{beside}; {oldest.name} longest, for {lasts}"
    it = "it" if len(found) == 1 else "them"
    return problem(
        check,
        # Without any worker the numbers are in the diagnosis of all workers.
        f"{what}; {_loss(found)}." if present else f"{what}.",
        f"Start {it} again. Executions that wait for {it} end at their TTL and can then be run again.",
        since=oldest.standing.unavailable_since,
        evidence=_some(found, _about_absence),
        headline=_subject(found, "is unavailable", "are unavailable"),
    )


def _loss(found: Sequence[ObservedWorker]) -> str:
    counts = [one.ended_last_hour for one in found]
    ended = "an unknown number" if None in counts else sum(one or 0 for one in counts)
    waiting = sum(one.waiting for one in found)
    return (
        f"dlq-handler ended {ended} of {'its' if len(found) == 1 else 'their'} executions in the last hour, "
        f"{waiting} {'waits' if waiting == 1 else 'wait'}"
    )


def hung(view: View) -> Diagnosis:
    def describe(found: Sequence[ObservedWorker]) -> Diagnosis:
        it, holds = ("it", "it holds") if len(found) == 1 else ("them", "they hold")
        return problem(
            Check.WORKER_HUNG,
            f"{_names(found, 'hangs', 'hang')}: {_about_held(found)}.",
            f"Restart {it}: messages that {holds} return to the queue and expire at once.",
            since=min(_hung_since(one, view) for one in found),
            evidence=_some(found, _about_hanging),
            headline=_subject(found, "hangs", "hang"),
        )

    fine = "No worker holds messages that it does not start."
    return _by_queue(view, Check.WORKER_HUNG, lambda one: _is_hung(one, view), describe, fine=fine)


def _about_held(found: Sequence[ObservedWorker]) -> str:
    """A worker may acknowledge a message before it has done the work: held and running are two numbers."""
    counts = [one.known_queue.unacked for one in found if one.known_queue]
    held = None if None in counts else sum(one or 0 for one in counts)
    running = sum(one.registered.running for one in found)
    begun = "none started" if running == 0 else f"{running} running without a heartbeat"
    if held is None:
        return f"messages may be held and {begun}; a held message never expires"
    if held == 0:
        nothing = "nothing is held" if running == 0 else f"nothing is held, {begun}"
        return f"{nothing}, but the queue is consumed without a heartbeat, and a message that is taken never expires"
    return f"{held} message(s) held and {begun}; a held message never expires"


def _hung_since(one: ObservedWorker, view: View) -> datetime:
    """A worker that reports has a new heartbeat at every observation: it is dated by what it does not start."""
    return one.standing.unavailable_since or view.at - timedelta(seconds=_waited_seconds(one))


def queue(view: View) -> Diagnosis:
    def describe(found: Sequence[ObservedWorker]) -> Diagnosis:
        lost = [one for one in found if one.known_queue is None]
        unattended = [one for one in found if one.known_queue]
        sentences = [_about_lost(lost)] if lost else []
        if unattended:
            ready = sum(one.known_queue.ready for one in unattended if one.known_queue)
            has_none = (
                "its queue has no consumer" if len(unattended) == 1 else "their queues have no consumer"
            )
            sentences.append(
                f"{_names(unattended, 'reports', 'report')}, but {has_none}: {ready} message(s) wait there and expire."
            )
        return problem(
            Check.WORKER_QUEUE,
            " ".join(sentences),
            _way_back(len(found), is_lost=bool(lost)),
            evidence=_some(found, _about_queue),
            headline=_subject(found, "does not consume its queue", "do not consume their queues"),
        )

    def is_unattended(one: ObservedWorker) -> bool:
        # Every worker that stops or dies leaves its queue before its heartbeat is old: that alone is no lost link.
        is_reporting = one.is_reporting and not one.was_stopped
        is_waiting = (
            one.known_queue is not None and one.known_queue.consumers == 0 and one.known_queue.ready > 0
        )
        return is_reporting and (one.known_queue is None or is_waiting)

    fine = "No message waits in a queue without a consumer whose worker reports."
    return _by_queue(view, Check.WORKER_QUEUE, is_unattended, describe, fine=fine)


def _about_lost(found: Sequence[ObservedWorker]) -> str:
    """The broker confirms a message that it cannot route, and the executor does not ask to have it returned."""
    scheduled = sum(one.registered.scheduled for one in found)
    it = "it" if len(found) == 1 else "them"
    return (
        f"{_names(found, 'reports, but has no queue', 'report, but have no queue')}: dispatches to {it} are lost "
        f"without a dead letter; {scheduled} {'is' if scheduled == 1 else 'are'} scheduled on {it}."
    )


def _way_back(count: int, *, is_lost: bool) -> str:
    it, declares = ("it", "it declares its queue") if count == 1 else ("them", "they declare their queues")
    if is_lost:
        return f"Restart {it}: {declares} at the start. The timeout monitor ends what was lost until then."
    return f"Restart {it}: a worker of Attune that has lost its connection to the broker does not reconnect."


def backlog(view: View) -> Diagnosis:
    def describe(found: Sequence[ObservedWorker]) -> Diagnosis:
        ready = sum(one.known_queue.ready for one in found if one.known_queue)
        longest = max(found, key=_waited_seconds)
        return problem(
            Check.WORKER_BACKLOG,
            f"{_names(found, 'is alive', 'are alive')}, but slower than the TTL: {ready} message(s) wait, the longest "
            f"for {in_units(_waited_seconds(longest))} of {in_units(_ttl_seconds(longest, view))}; "
            f"{sum(one.expired_lately for one in found)} expired in the last minutes.",
            "Give the worker more concurrency, or its actions more workers.",
            since=view.at - timedelta(seconds=_waited_seconds(longest)) if _waited_seconds(longest) else None,
            evidence=_some(found, _about_queue),
        )

    fine = "No message waits for long where a worker is available."
    return _by_queue(view, Check.WORKER_BACKLOG, lambda one: _has_backlog(one, view), describe, fine=fine)


def _by_queue(
    view: View,
    check: Check,
    is_it: Callable[[ObservedWorker], bool],
    describe: Callable[[Sequence[ObservedWorker]], Diagnosis],
    *,
    fine: str,
) -> Diagnosis:
    """For checks that need both the broker and the heartbeat."""
    if isinstance(view.workers, Unknown):
        return unknown(check, view.workers)
    expected = _expected(view.workers)
    found = [one for one in expected if not isinstance(one.queue, Unknown) and is_it(one)]
    if found:
        return describe(found)
    for one in expected:
        if isinstance(one.queue, Unknown):
            return unknown(check, Unknown(f"{one.name}: {one.queue.explanation}", one.queue.cause))
    return ok(check, fine)


def _expected(workers: Sequence[ObservedWorker]) -> list[ObservedWorker]:
    """Workers that are present, or missed."""
    return [one for one in workers if one.is_present or one.is_missed]


def _is_unavailable(one: ObservedWorker, *, is_any_present: bool) -> bool:
    """Without any worker that is present, each that was lately is missed: the host marks dead workers inactive too."""
    is_silent = one.standing.availability is Availability.UNAVAILABLE
    is_missed = one.is_missed or not (is_any_present or is_silent_for_a_day(one.registered.worker))
    return is_silent and is_missed and not one.is_consumed


def _has_reported(one: ObservedWorker) -> bool:
    return one.registered.worker.heartbeat_age_seconds is not None


def _is_hung(one: ObservedWorker, view: View) -> bool:
    if not one.is_consumed:
        return False
    if one.standing.availability is Availability.UNAVAILABLE:
        return True
    held = one.known_queue.unacked if one.known_queue else None
    # It reports and starts nothing: prefetched messages never expire, so no dead letter would report it.
    is_stuck = _waited_seconds(one) > _ttl_seconds(one, view)
    return bool(held) and one.registered.running == 0 and is_stuck


def _has_backlog(one: ObservedWorker, view: View) -> bool:
    if not (one.is_present and one.is_consumed and one.known_queue and one.known_queue.ready):
        return False
    return one.expired_lately > 0 or _waited_seconds(one) >= NEARLY_EXPIRED * _ttl_seconds(one, view)


def _ttl_seconds(one: ObservedWorker, view: View) -> float:
    ttl_ms = one.known_queue.ttl_ms if one.known_queue else None
    return view.ttl_seconds if ttl_ms is None else ttl_ms / 1000


def _unavailable_seconds(one: ObservedWorker, view: View) -> float:
    """Since its heartbeat became too old, as everywhere, and not since the heartbeat, which is earlier."""
    since = one.standing.unavailable_since
    return one.silent_seconds if since is None else (view.at - since).total_seconds()


def _waited_seconds(one: ObservedWorker) -> float:
    return one.registered.oldest_scheduled_seconds or 0.0


def _about_absence(one: ObservedWorker) -> str:
    ready = one.known_queue.ready if one.known_queue else "unknown"
    ended = "unknown" if one.ended_last_hour is None else one.ended_last_hour
    return (
        f"{one.name}: last heartbeat {in_units(one.silent_seconds)} ago, {ready} ready in its queue, "
        f"{ended} ended in the last hour"
    )


def _about_hanging(one: ObservedWorker) -> str:
    held = one.known_queue.unacked if one.known_queue else None
    return (
        f"{one.name}: last heartbeat {in_units(one.silent_seconds)} ago, holds {'unknown' if held is None else held}, "
        f"runs {one.registered.running}, the oldest scheduled for {in_units(_waited_seconds(one))}"
    )


def _about_queue(one: ObservedWorker) -> str:
    if one.known_queue is None:
        return f"{one.name}: it has no queue"
    waited = in_units(_waited_seconds(one))
    return (
        f"{one.name}: {one.known_queue.consumers} consumer(s), {one.known_queue.ready} ready, "
        f"the oldest scheduled for {waited}"
    )


def _names(found: Sequence[ObservedWorker], one_does: str, many_do: str) -> str:
    if len(found) == 1:
        return f"{found[0].name} {one_does}"
    return f"{len(found)} workers, {found[0].name} among them, {many_do}"


def _subject(found: Sequence[ObservedWorker], one_does: str, many_do: str) -> str:
    return f"{found[0].name} {one_does}" if len(found) == 1 else f"{len(found)} workers {many_do}"


def _some(found: Sequence[ObservedWorker], describe: Callable[[ObservedWorker], str]) -> list[str]:
    rest = len(found) - _SHOWN
    return [describe(one) for one in found[:_SHOWN]] + ([f"and {rest} more"] if rest > 0 else [])
