"""Diagnose the workers. Pure.

A worker is gone when it is silent and takes nothing any more; it hangs when it is silent and still holds its queue, or
holds messages and starts none of them. Heartbeat and broker together tell the two apart; neither does alone.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from dlq_handler.diagnosis.diagnosis import (
    WORKER_BACKLOG,
    WORKER_GONE,
    WORKER_HUNG,
    WORKER_QUEUE,
    Diagnosis,
    diagnosed,
)
from dlq_handler.diagnosis.doctor_lines import REPAIR_FIRST
from dlq_handler.diagnosis.fleet import WATCH_ON
from dlq_handler.diagnosis.observation import Looked
from dlq_handler.diagnosis.servers import unknown
from dlq_handler.diagnosis.view import Unknown, View, WorkerSeen
from dlq_handler.text import in_units
from dlq_handler.workers.availability import Availability, is_history

# From this share of its TTL on, what waits is about to expire.
NEARLY_EXPIRED = 0.8

_SHOWN = 10


def gone(view: View) -> Diagnosis:
    if isinstance(view.workers, Unknown):
        return unknown(WORKER_GONE, view.workers)
    is_anybody_there = any(one.is_there for one in view.workers)
    found = [one for one in view.workers if _is_gone(one, is_anybody_there=is_anybody_there)]
    if not found:
        unsure = [one for one in _expected(view.workers) if _is_unsure(one)]
        if unsure:
            # To wait for the first heartbeat of one that never sent any would be in vain.
            one = min(unsure, key=_has_reported)
            fix = WATCH_ON if _has_reported(one) else REPAIR_FIRST
            return diagnosed(WORKER_GONE.unknown(f"{one.name}: {one.standing.explanation}", fix))
        return diagnosed(WORKER_GONE.ok("none that is missed"))
    oldest = max(found, key=lambda one: one.silent_seconds)
    lasts = in_units(_gone_seconds(oldest, view))
    there = sum(one.is_there for one in view.workers)
    what = f"{oldest.name} has been gone for {lasts}"
    if len(found) > 1:
        beside = f" and {there} {'is' if there == 1 else 'are'} there" if there else ""
        what = f"{len(found)} are gone{beside}; {oldest.name} has been gone longest, for {lasts}"
    it = "it" if len(found) == 1 else "them"
    return diagnosed(
        WORKER_GONE.problem(
            # Where nobody is left, that is the news, and its numbers are told there.
            f"{what}; {_harm(found)}" if there else what,
            f"start {it} again; what waits for {it} ends at its TTL, is announced, and can be run again by its owner",
            headline=_subject(found, "is unavailable", "are unavailable"),
        ),
        since=oldest.standing.gone_since,
        evidence=_told(found, _about_absence),
        about=_ids(found),
    )


def _harm(found: Sequence[WorkerSeen]) -> str:
    counts = [one.ended_last_hour for one in found]
    ended = "an unknown number" if None in counts else sum(one or 0 for one in counts)
    waiting = sum(one.waiting for one in found)
    return (
        f"{ended} of {'its' if len(found) == 1 else 'their'} executions {'was' if ended == 1 else 'were'} ended by us "
        f"in the last hour, {waiting} {'waits' if waiting == 1 else 'wait'}"
    )


def hung(view: View) -> Diagnosis:
    def tell(found: Sequence[WorkerSeen]) -> Diagnosis:
        it, holds = ("it", "it holds") if len(found) == 1 else ("them", "they hold")
        return diagnosed(
            WORKER_HUNG.problem(
                f"{_who(found, 'hangs', 'hang')}: {_about_held(found)}",
                f"restart {it}: what {holds} goes back to its queue, past its TTL, and comes to us at once",
                headline=_subject(found, "hangs", "hang"),
            ),
            since=min(_hung_since(one, view) for one in found),
            evidence=_told(found, _about_hanging),
            about=_ids(found),
        )

    fine = "none holds messages that it does not start"
    return _by_queue(view, WORKER_HUNG, lambda one: _is_hung(one, view), tell, fine=fine)


def _about_held(found: Sequence[WorkerSeen]) -> str:
    """What is held and what was begun are two things: a worker may settle a message before it has done the work."""
    counts = [one.sight.unacked for one in found if one.sight]
    held = None if None in counts else sum(one or 0 for one in counts)
    running = sum(one.registered.running for one in found)
    begun = "none started" if running == 0 else f"{running} begun that nobody hears of"
    if held is None:
        return f"messages may be held and {begun}; what is held never expires"
    if held == 0:
        nothing = "nothing is held" if running == 0 else f"nothing is held, {begun}"
        return f"{nothing}, but the queue is still consumed without a heartbeat, and what is taken will not expire"
    return f"{held} message(s) held and {begun}; what is held never expires"


def _hung_since(one: WorkerSeen, view: View) -> datetime:
    """One that reports has a new heartbeat with every look; it is what it does not start that tells since when."""
    return one.standing.gone_since or view.at - timedelta(seconds=_waited_seconds(one))


def queue(view: View) -> Diagnosis:
    def tell(found: Sequence[WorkerSeen]) -> Diagnosis:
        lost = [one for one in found if one.sight is None]
        unattended = [one for one in found if one.sight]
        told = [_about_lost(lost)] if lost else []
        if unattended:
            ready = sum(one.sight.ready for one in unattended if one.sight)
            has_none = (
                "its queue has no consumer" if len(unattended) == 1 else "their queues have no consumer"
            )
            told.append(
                f"{_who(unattended, 'reports', 'report')}, but {has_none}: {ready} message(s) wait there and expire"
            )
        return diagnosed(
            WORKER_QUEUE.problem(
                "; ".join(told),
                _way_back(len(found), is_lost=bool(lost)),
                headline=_subject(found, "does not consume its queue", "do not consume their queues"),
            ),
            evidence=_told(found, _about_queue),
            about=_ids(found),
        )

    def is_unattended(one: WorkerSeen) -> bool:
        # Every worker that stops or dies leaves its queue before its heartbeat is old: that alone is no lost link.
        is_reporting = one.is_reporting and not one.was_stopped
        return is_reporting and (one.sight is None or (one.sight.consumers == 0 and one.sight.ready > 0))

    fine = "no message waits in a queue without a consumer whose worker reports"
    return _by_queue(view, WORKER_QUEUE, is_unattended, tell, fine=fine)


def _about_lost(found: Sequence[WorkerSeen]) -> str:
    """The broker confirms what it cannot route, and the executor does not ask to have it back."""
    scheduled = sum(one.registered.scheduled for one in found)
    it = "it" if len(found) == 1 else "them"
    who = _who(found, "reports, but has no queue", "report, but have no queue")
    return (
        f"{who}: what is sent to {it} is lost without a letter; {scheduled} "
        f"{'is' if scheduled == 1 else 'are'} scheduled on {it}"
    )


def _way_back(count: int, *, is_lost: bool) -> str:
    it, declares = ("it", "it declares its queue") if count == 1 else ("them", "they declare their queues")
    if is_lost:
        return f"restart {it}: {declares} at the start; what was lost until then ends by the monitor's time limit"
    return f"restart {it}: a worker of Attune's that has lost its connection to the broker does not reconnect"


def backlog(view: View) -> Diagnosis:
    def tell(found: Sequence[WorkerSeen]) -> Diagnosis:
        ready = sum(one.sight.ready for one in found if one.sight)
        longest = max(found, key=_waited_seconds)
        return diagnosed(
            WORKER_BACKLOG.problem(
                f"{_who(found, 'is alive', 'are alive')}, but slower than the TTL: {ready} message(s) wait, the "
                f"longest for {in_units(_waited_seconds(longest))} of {in_units(_ttl_seconds(longest, view))}; "
                f"{sum(one.expired_lately for one in found)} expired in the last minutes",
                "give the worker more concurrency, or its actions more workers",
            ),
            since=view.at - timedelta(seconds=_waited_seconds(longest)) if _waited_seconds(longest) else None,
            evidence=_told(found, _about_queue),
            about=_ids(found),
        )

    fine = "nothing waits for long where a worker is there"
    return _by_queue(view, WORKER_BACKLOG, lambda one: _has_backlog(one, view), tell, fine=fine)


def _by_queue(
    view: View,
    looked: Looked,
    is_it: Callable[[WorkerSeen], bool],
    tell: Callable[[Sequence[WorkerSeen]], Diagnosis],
    *,
    fine: str,
) -> Diagnosis:
    """For what only the broker and the heartbeat can tell together."""
    if isinstance(view.workers, Unknown):
        return unknown(looked, view.workers)
    expected = _expected(view.workers)
    found = [one for one in expected if not isinstance(one.queue, Unknown) and is_it(one)]
    if found:
        return tell(found)
    for one in expected:
        if isinstance(one.queue, Unknown):
            return diagnosed(looked.unknown(f"{one.name}: {one.queue.explanation}", REPAIR_FIRST))
    return diagnosed(looked.ok(fine))


def _expected(workers: Sequence[WorkerSeen]) -> list[WorkerSeen]:
    """Those that are there, or are missed."""
    return [one for one in workers if one.is_there or one.is_missed]


def _is_gone(one: WorkerSeen, *, is_anybody_there: bool) -> bool:
    """Where nobody is there any more everybody is missed who was there lately: the host marks the dead inactive too."""
    is_silent = one.standing.availability is Availability.UNAVAILABLE
    is_missed = one.is_missed or not (is_anybody_there or is_history(one.registered.worker))
    return is_silent and is_missed and not one.is_consumed


def _is_unsure(one: WorkerSeen) -> bool:
    return one.standing.availability is Availability.UNKNOWN


def _has_reported(one: WorkerSeen) -> bool:
    return one.registered.worker.heartbeat_age_seconds is not None


def _is_hung(one: WorkerSeen, view: View) -> bool:
    if not one.is_consumed:
        return False
    if one.standing.availability is Availability.UNAVAILABLE:
        return True
    held = one.sight.unacked if one.sight else None
    # It reports and starts nothing: prefetched messages never expire, so nobody else would tell.
    is_stuck = _waited_seconds(one) > _ttl_seconds(one, view)
    return bool(held) and one.registered.running == 0 and is_stuck


def _has_backlog(one: WorkerSeen, view: View) -> bool:
    if not (one.is_there and one.is_consumed and one.sight and one.sight.ready):
        return False
    return one.expired_lately > 0 or _waited_seconds(one) >= NEARLY_EXPIRED * _ttl_seconds(one, view)


def _ttl_seconds(one: WorkerSeen, view: View) -> float:
    ttl_ms = one.sight.ttl_ms if one.sight else None
    return view.ttl_seconds if ttl_ms is None else ttl_ms / 1000


def _gone_seconds(one: WorkerSeen, view: View) -> float:
    """Since it counts as gone, as everywhere; its last heartbeat, which is earlier, is told by that name."""
    since = one.standing.gone_since
    return one.silent_seconds if since is None else (view.at - since).total_seconds()


def _waited_seconds(one: WorkerSeen) -> float:
    return one.registered.oldest_scheduled_seconds or 0.0


def _about_absence(one: WorkerSeen) -> str:
    ready = one.sight.ready if one.sight else "?"
    return (
        f"{one.name}: last heartbeat {in_units(one.silent_seconds)} ago, {ready} ready in its queue, "
        f"{'?' if one.ended_last_hour is None else one.ended_last_hour} ended in the last hour"
    )


def _about_hanging(one: WorkerSeen) -> str:
    held = one.sight.unacked if one.sight else None
    return (
        f"{one.name}: last heartbeat {in_units(one.silent_seconds)} ago, holds {'?' if held is None else held}, "
        f"runs {one.registered.running}, the oldest scheduled for {in_units(_waited_seconds(one))}"
    )


def _about_queue(one: WorkerSeen) -> str:
    if one.sight is None:
        return f"{one.name}: there is no queue of it"
    waited = in_units(_waited_seconds(one))
    return f"{one.name}: {one.sight.consumers} consume(s), {one.sight.ready} ready, the oldest scheduled for {waited}"


def _who(found: Sequence[WorkerSeen], one_does: str, many_do: str) -> str:
    if len(found) == 1:
        return f"{found[0].name} {one_does}"
    return f"{len(found)} workers, {found[0].name} among them, {many_do}"


def _subject(found: Sequence[WorkerSeen], one_does: str, many_do: str) -> str:
    return f"{found[0].name} {one_does}" if len(found) == 1 else f"{len(found)} workers {many_do}"


def _ids(found: Sequence[WorkerSeen]) -> list[int]:
    return [one.registered.worker.id for one in found]


def _told(found: Sequence[WorkerSeen], about: Callable[[WorkerSeen], str]) -> list[str]:
    """Not thousands of lines for a fleet that is gone."""
    rest = len(found) - _SHOWN
    return [about(one) for one in found[:_SHOWN]] + ([f"and {rest} more"] if rest > 0 else [])
