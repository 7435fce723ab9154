"""Diagnose the workers as a whole: is anybody there who could take what is asked for? Pure.

Who is gone, hangs or is slow is told in `diagnose_workers`; here, that nobody is left, which no single name tells.
"""

from collections.abc import Sequence

from dlq_handler.diagnosis import doctor_database_lines
from dlq_handler.diagnosis.diagnosis import Diagnosis, diagnosed
from dlq_handler.diagnosis.own import what_pauses
from dlq_handler.diagnosis.servers import unknown
from dlq_handler.diagnosis.view import Unknown, View, WorkerSeen
from dlq_handler.text import in_units
from dlq_handler.workers.availability import Availability, is_history

# After a start or an outage of the database: nobody is to be looked for yet.
WATCH_ON = "wait: it can be told when we have watched for long enough"

_SHOWN = 10


def registered(view: View) -> Diagnosis:
    if isinstance(view.workers, Unknown):
        return unknown(doctor_database_lines.WORKERS, view.workers)
    reporting = [one for one in view.workers if not is_history(one.registered.worker)]
    if not reporting:
        return diagnosed(doctor_database_lines.workers(len(view.workers), 0))
    if not any(one.is_there for one in reporting):
        return _nobody_there(view, reporting)
    return _given_up(view, reporting) or diagnosed(
        doctor_database_lines.workers(len(view.workers), len(reporting)), evidence=_by_state(reporting)
    )


def _nobody_there(view: View, reporting: Sequence[WorkerSeen]) -> Diagnosis:
    """Nobody is there since the last one went, whoever was gone long before it."""
    unsure = [one for one in reporting if one.standing.availability is Availability.UNKNOWN]
    if unsure:
        said = f"{unsure[0].name}: {unsure[0].standing.explanation}"
        return diagnosed(doctor_database_lines.WORKERS.unknown(said, WATCH_ON), evidence=_by_state(reporting))
    since = max((at for one in reporting if (at := one.standing.gone_since)), default=None)
    hanging = sum(one.is_consumed for one in reporting)
    state = "gone" if not hanging else "hung" if hanging == len(reporting) else "gone or hung"
    lasts = "" if since is None else f" for {in_units((view.at - since).total_seconds())}"
    what = f"all {len(reporting)} have been {state}{lasts}"
    if len(reporting) == 1:
        what = f"{reporting[0].name} has been {state}{lasts}, and no other is there"
    return diagnosed(
        doctor_database_lines.WORKERS.problem(
            f"{what}; {_harm(view, reporting)}",
            "start the workers: what is asked for meanwhile is turned down, or ends at its TTL",
        ),
        since=since,
        evidence=[
            f"{one.name}: last heartbeat {in_units(one.silent_seconds)} ago"
            for one in sorted(reporting, key=lambda one: one.silent_seconds)[:_SHOWN]
        ],
        # All is all, however many: only who is named can be another one tomorrow.
        about=_ids(reporting) if len(reporting) == 1 else (),
    )


def _harm(view: View, reporting: Sequence[WorkerSeen]) -> str:
    """Also what never got as far as a worker: no single worker's numbers have that."""
    counts = [one.ended_last_hour for one in reporting]
    ended = None if None in counts else sum(one or 0 for one in counts)
    waiting = (
        None
        if isinstance(view.requested, Unknown)
        else view.requested + sum(one.waiting for one in reporting)
    )
    ending = f"{_many(ended, 'execution was', 'executions were')} ended by us in the last hour"
    harm = f"{ending}, {_many(waiting, 'waits', 'wait')}"
    if isinstance(view.letters, Unknown):
        return harm
    paused_by = what_pauses(view)
    if paused_by is not None:
        return f"{harm}; how many the scheduler turned down is unknown, because the {paused_by} pauses the intake"
    declined, span = view.letters.declined, in_units(view.letters.span_seconds)
    return (
        f"{harm}, the scheduler turned down {_many(declined, 'execution', 'executions')} in the last {span}"
    )


def _many(count: int | None, one: str, many: str) -> str:
    if count is None:
        return f"an unknown number of {many}" if " " in many else f"an unknown number {many}"
    return f"{count} {one if count == 1 else many}"


def _given_up(view: View, reporting: Sequence[WorkerSeen]) -> Diagnosis | None:
    """Workers that work, and that the host marked inactive: its scheduler gives them nothing, whatever they report.

    The mark alone is harmless, as an orderly stop begins with it. Requests that were rejected for want of a worker are
    the proof that somebody misses them.
    """
    declined = 0 if isinstance(view.letters, Unknown) else view.letters.declined
    found = [
        one
        for one in reporting
        if one.registered.status == "inactive" and one.is_there and one.is_on_time and one.is_consumed
    ]
    if not found or not declined:
        return None
    verb = "reports and consumes, but is" if len(found) == 1 else "report and consume, but are"
    who = found[0].name if len(found) == 1 else f"{len(found)} workers"
    them, they = ("it", "it registers") if len(found) == 1 else ("them", "they register")
    return diagnosed(
        doctor_database_lines.WORKERS.problem(
            f"{who} {verb} inactive in the host's table, so the scheduler gives {them} nothing; "
            f"{_many(declined, 'execution was', 'executions were')} turned down lately for want of a worker",
            f"restart {them}: {they} as active at the start, and no heartbeat does that later",
            headline="Active workers are marked inactive and get no work",
        ),
        evidence=[
            f"{one.name}: inactive, last heartbeat {in_units(one.silent_seconds)} ago"
            for one in found[:_SHOWN]
        ],
        about=_ids(found),
    )


def _ids(workers: Sequence[WorkerSeen]) -> list[int]:
    return [one.registered.worker.id for one in workers]


def _by_state(reporting: Sequence[WorkerSeen]) -> list[str]:
    return [
        f"{count} {state.value.replace('_', ' ')}"
        for state in Availability
        if (count := sum(one.standing.availability is state for one in reporting))
    ]
