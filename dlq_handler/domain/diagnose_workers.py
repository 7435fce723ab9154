"""Diagnose the workers. Pure.

A worker is gone when it is silent and takes nothing any more; it hangs when it is silent and still holds its queue, or
holds messages and starts none of them. Heartbeat and broker together tell the two apart; neither does alone.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta

from dlq_handler.domain import doctor_database
from dlq_handler.domain.availability import Availability, is_history
from dlq_handler.domain.diagnose_servers import MEND_FIRST, unknown
from dlq_handler.domain.diagnosis import (
    WORKER_BACKLOG,
    WORKER_GONE,
    WORKER_HUNG,
    WORKER_QUEUE,
    Diagnosis,
    diagnosed,
)
from dlq_handler.domain.observation import Looked
from dlq_handler.domain.seconds import in_units
from dlq_handler.domain.view import Unknown, View, WorkerSeen

# From this share of its TTL on, what waits is about to expire.
NEARLY_EXPIRED = 0.8

_SHOWN = 10


def registered(view: View) -> Diagnosis:
    if isinstance(view.workers, Unknown):
        return unknown(doctor_database.WORKERS, view.workers)
    reporting = [one for one in view.workers if not is_history(one.registered.worker)]
    by_state = [
        f"{count} {state.value.replace('_', ' ')}"
        for state in Availability
        if (count := sum(one.standing.availability is state for one in reporting))
    ]
    if given_up := _given_up(view, reporting):
        return given_up
    return diagnosed(doctor_database.workers(len(view.workers), len(reporting)), evidence=by_state)


def _given_up(view: View, reporting: Sequence[WorkerSeen]) -> Diagnosis | None:
    """Workers that work, and that the host marked inactive: its scheduler gives them nothing, whatever they report.

    The mark alone is harmless, as an orderly stop begins with it. Requests that were rejected for want of a worker are
    the proof that somebody misses them.
    """
    declined = 0 if isinstance(view.letters, Unknown) else view.letters.declined
    found = [
        one
        for one in reporting
        if one.registered.status == "inactive" and one.is_there and one.is_on_time and _is_consumed(one)
    ]
    if not found or not declined:
        return None
    verb = "reports and consumes, but is" if len(found) == 1 else "report and consume, but are"
    who = found[0].name if len(found) == 1 else f"{len(found)} workers"
    return diagnosed(
        doctor_database.WORKERS.problem(
            f"{who} {verb} inactive in the host's table, so the scheduler gives them nothing; "
            f"{declined} request(s) were rejected lately for want of a worker",
            "restart them: they register as active when they start, and a heartbeat never makes them so again",
        ),
        evidence=[
            f"{one.name}: inactive, last heartbeat {in_units(_silent_seconds(one))} ago"
            for one in found[:_SHOWN]
        ],
    )


def gone(view: View) -> Diagnosis:
    if isinstance(view.workers, Unknown):
        return unknown(WORKER_GONE, view.workers)
    is_anybody_there = any(one.is_there for one in view.workers)
    found = [one for one in view.workers if _is_gone(one, is_anybody_there=is_anybody_there)]
    if not found:
        unsure = [one for one in _expected(view.workers) if _is_unsure(one)]
        if unsure:
            return diagnosed(
                WORKER_GONE.cannot_tell(f"{unsure[0].name}: {unsure[0].standing.why}", MEND_FIRST)
            )
        return diagnosed(WORKER_GONE.ok("none that is missed"))
    oldest = max(found, key=_silent_seconds)
    counts = [one.ended_last_hour for one in found]
    ended = "an unknown number" if None in counts else sum(one or 0 for one in counts)
    waiting = sum(one.waiting for one in found)
    harm = f"{ended} of {'its' if len(found) == 1 else 'their'} executions were ended in the last hour, {waiting} wait"
    silent = in_units(_silent_seconds(oldest))
    what = f"{oldest.name} has been gone for {silent}; {harm}"
    if len(found) > 1:
        there = sum(one.is_there for one in view.workers)
        what = f"{len(found)} are gone and {there} are there; {oldest.name} has been gone longest, for {silent}; {harm}"
    fix = "start it again; what waits for it ends at its TTL, is announced, and can be run again by its owner"
    return diagnosed(
        WORKER_GONE.problem(what, fix),
        since=oldest.registered.worker.last_heartbeat,
        evidence=_told(found, _about_absence),
    )


def hung(view: View) -> Diagnosis:
    def tell(found: Sequence[WorkerSeen]) -> Diagnosis:
        held = [one.sight.unacked for one in found if one.sight]
        count = sum(one or 0 for one in held)
        messages = "messages" if None in held else f"{count} message(s)"
        harm = f"{messages} held and none started, and held messages never expire"
        if count == 0 and None not in held:
            harm = "connected to its queue without a heartbeat; it holds nothing yet, and what it takes will not expire"
        return diagnosed(
            WORKER_HUNG.problem(
                f"{_who(found, 'hangs', 'hang')}: {harm}",
                "restart it: what it holds goes back to its queue, past its TTL, and comes to us at once",
            ),
            since=min((at for one in found if (at := one.registered.worker.last_heartbeat)), default=None),
            evidence=_told(found, _about_hanging),
        )

    fine = "none holds messages that it does not start"
    return _by_queue(view, WORKER_HUNG, lambda one: _is_hung(one, view), tell, fine=fine)


def queue(view: View) -> Diagnosis:
    def tell(found: Sequence[WorkerSeen]) -> Diagnosis:
        ready = sum(one.sight.ready for one in found if one.sight)
        return diagnosed(
            WORKER_QUEUE.problem(
                f"{_who(found, 'reports', 'report')}, but nobody consumes its queue: {ready} message(s) wait there and "
                "expire",
                "see whether it still runs: if it does, it lost its link to the broker without noticing; restart it",
            ),
            evidence=_told(found, _about_queue),
        )

    def is_unattended(one: WorkerSeen) -> bool:
        # Every worker that stops or dies leaves its queue before its heartbeat is old: that alone is no lost link.
        is_reporting = one.is_there and one.is_on_time and not one.was_stopped
        return is_reporting and (one.sight is None or (one.sight.consumers == 0 and one.sight.ready > 0))

    fine = "every worker that reports consumes its queue"
    return _by_queue(view, WORKER_QUEUE, is_unattended, tell, fine=fine)


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
            since=view.at - timedelta(seconds=_waited_seconds(longest)),
            evidence=_told(found, _about_queue),
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
            return diagnosed(looked.cannot_tell(f"{one.name}: {one.queue.why}", MEND_FIRST))
    return diagnosed(looked.ok(fine))


def _expected(workers: Sequence[WorkerSeen]) -> list[WorkerSeen]:
    """Those that are there, or are missed."""
    return [one for one in workers if one.is_there or one.is_missed]


def _is_gone(one: WorkerSeen, *, is_anybody_there: bool) -> bool:
    """Where nobody is there any more everybody is missed who was there lately: the host marks the dead inactive too."""
    is_silent = one.standing.availability is Availability.UNAVAILABLE
    is_missed = one.is_missed or not (is_anybody_there or is_history(one.registered.worker))
    return is_silent and is_missed and not _is_consumed(one)


def _is_unsure(one: WorkerSeen) -> bool:
    return one.standing.availability is Availability.CANNOT_TELL


def _is_hung(one: WorkerSeen, view: View) -> bool:
    if not _is_consumed(one):
        return False
    if one.standing.availability is Availability.UNAVAILABLE:
        return True
    held = one.sight.unacked if one.sight else None
    # It reports and starts nothing: prefetched messages never expire, so nobody else would tell.
    is_stuck = _waited_seconds(one) > _ttl_seconds(one, view)
    return bool(held) and one.registered.running == 0 and is_stuck


def _has_backlog(one: WorkerSeen, view: View) -> bool:
    if not (one.is_there and _is_consumed(one) and one.sight and one.sight.ready):
        return False
    return one.expired_lately > 0 or _waited_seconds(one) >= NEARLY_EXPIRED * _ttl_seconds(one, view)


def _is_consumed(one: WorkerSeen) -> bool:
    return one.sight is not None and one.sight.consumers > 0


def _ttl_seconds(one: WorkerSeen, view: View) -> float:
    ttl_ms = one.sight.ttl_ms if one.sight else None
    return view.ttl_seconds if ttl_ms is None else ttl_ms / 1000


def _silent_seconds(one: WorkerSeen) -> float:
    return one.registered.worker.heartbeat_age_seconds or 0.0


def _waited_seconds(one: WorkerSeen) -> float:
    return one.registered.oldest_scheduled_seconds or 0.0


def _about_absence(one: WorkerSeen) -> str:
    ready = one.sight.ready if one.sight else "?"
    return (
        f"{one.name}: last heartbeat {in_units(_silent_seconds(one))} ago, {ready} ready in its queue, "
        f"{'?' if one.ended_last_hour is None else one.ended_last_hour} ended in the last hour"
    )


def _about_hanging(one: WorkerSeen) -> str:
    held = one.sight.unacked if one.sight else None
    return (
        f"{one.name}: last heartbeat {in_units(_silent_seconds(one))} ago, holds {'?' if held is None else held}, "
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


def _told(found: Sequence[WorkerSeen], about: Callable[[WorkerSeen], str]) -> list[str]:
    """Not thousands of lines for a fleet that is gone."""
    rest = len(found) - _SHOWN
    return [about(one) for one in found[:_SHOWN]] + ([f"and {rest} more"] if rest > 0 else [])
