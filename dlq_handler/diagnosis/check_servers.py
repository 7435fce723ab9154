"""Checks of the database and the broker. Pure."""

from collections.abc import Sequence

from dlq_handler.diagnosis.checks import Check
from dlq_handler.diagnosis.diagnosis import MANAGEMENT_ACTION, REPAIR_FIRST, Diagnosis, ok, problem, unknown
from dlq_handler.diagnosis.view import OFF, Unknown, UnknownCause, View
from dlq_handler.topology.canary import CanaryState, describe_canaries, only_wants_time, worst_of
from dlq_handler.topology.check import Conclusion, QueueRole
from dlq_handler.topology.drift import Finding, Severity, listed
from dlq_handler.topology.routing import Answer

DATABASE_ACTION = "Start PostgreSQL, or correct database.url."

# Time limit of a query that reads no row. A batch runs several that read many.
SLOW_SECONDS = 1.0

NEXT_CANARY = "Wait for the next canary; dlq_handler.canary.interval_seconds is the interval."

_SHOWN = 5


def database(view: View) -> Diagnosis:
    fact = view.database
    if isinstance(fact, Unknown):
        return unknown(Check.DATABASE, fact)
    if fact.error is not None:
        headline = "The database is unreachable" if fact.is_unreachable else "The database cannot be used"
        return problem(Check.DATABASE, fact.error, DATABASE_ACTION, since=fact.since, headline=headline)
    if fact.is_in_recovery:
        return problem(
            Check.DATABASE,
            "The database answers, but is a standby: nothing can be written.",
            "Set database.url to the primary.",
            headline="The database is a read-only standby",
        )
    if fact.answer_seconds > SLOW_SECONDS:
        return problem(
            Check.DATABASE,
            f"A query that reads no row took {fact.answer_seconds:.1f} s. Dead letters are processed slowly or not at "
            "all.",
            "Find out what keeps PostgreSQL busy: locks, checkpoints, its disk or the network.",
            headline="The database answers slowly",
        )
    return ok(Check.DATABASE, f"The database answers within {fact.answer_seconds:.3f} s.")


def tables(view: View) -> Diagnosis:
    fact = view.tables
    if isinstance(fact, Unknown):
        return unknown(Check.OWN_TABLES, fact)
    version = f"Schema {fact.schema!r} has version {fact.version or 'none'}."
    if fact.problem is not None:
        return problem(Check.OWN_TABLES, version, fact.problem)
    return ok(Check.OWN_TABLES, version, evidence=[fact.note] if fact.note else [])


def rights(view: View) -> Diagnosis:
    fact = view.rights
    if isinstance(fact, Unknown):
        return unknown(Check.DATABASE_RIGHTS, fact)
    if not fact.missing:
        return ok(Check.DATABASE_RIGHTS, f"Role {fact.role!r} has all rights that dlq-handler needs.")
    command = f"dlq-handler grants --role {fact.role}"
    return problem(
        Check.DATABASE_RIGHTS,
        f"Role {fact.role!r} lacks {some_of(fact.missing)}.",
        f"Have an administrator run what `{command}` prints.",
        evidence=fact.missing,
        command=command,
    )


def broker(view: View) -> Diagnosis:
    fact = view.broker
    if isinstance(fact, Unknown):
        return unknown(Check.BROKER, fact)
    if fact.error is None:
        return ok(Check.BROKER, "The broker answers.")
    return problem(
        Check.BROKER, fact.error, "Start RabbitMQ, or correct message_queue.url.", since=fact.since
    )


def alarms(view: View) -> Diagnosis:
    fact = view.alarms
    if (isinstance(fact, Unknown) or not fact) and view.own and view.own.connections.is_blocked:
        # The broker blocked this replica's connection; the management API may be unavailable, or seconds behind.
        return _alarm(("the broker blocks the connection of dlq-handler",))
    if isinstance(fact, Unknown):
        return unknown(Check.BROKER_ALARM, fact, MANAGEMENT_ACTION if view.has_broker else REPAIR_FIRST)
    return _alarm(fact) if fact else ok(Check.BROKER_ALARM, "No node has an alarm.")


def _alarm(alarms: Sequence[str]) -> Diagnosis:
    return problem(
        Check.BROKER_ALARM,
        f"{some_of(alarms)}: the broker accepts no message, neither a dispatch nor a completion event.",
        "Free memory or disk on that node. Publishing then continues by itself.",
        evidence=alarms,
    )


def topology(view: View) -> Diagnosis:
    fact = view.topology
    if isinstance(fact, Unknown):
        return unknown(Check.TOPOLOGY, fact)
    checked, limits = fact.checked, fact.limits
    notes = [_note(finding) for finding in checked.findings]
    match checked.conclusion:
        case Conclusion.FINE:
            return ok(
                Check.TOPOLOGY,
                "Dead letters of every worker's queue reach the intake queue.",
                evidence=(*limits, *notes),
            )
        case Conclusion.UNKNOWN:
            why = limits[0] if limits else "the broker does not report enough to follow every route"
            return unknown(Check.TOPOLOGY, Unknown(why), MANAGEMENT_ACTION, evidence=(*limits[1:], *notes))
        case Conclusion.BROKEN_ROUTE:
            broken = [
                one.queue
                for one in checked.queues
                if one.arrives is Answer.BROKEN_ROUTE and one.role is QueueRole.WORKER
            ]
            what = f"Dead letters of {listed(broken)} are lost." if broken else "An execution can hang."
            return problem(
                Check.TOPOLOGY,
                what,
                "Run `dlq-handler topology apply`, which binds what is missing; a running replica does it by itself.",
                evidence=(*limits, *notes),
            )


def _note(finding: Finding) -> str:
    severity = "" if finding.severity is Severity.NOTE else f"{finding.severity}: "
    action = f"; {finding.way_out}" if finding.way_out else ""
    return f"{severity}{finding.subject}: {finding.is_now}{action}"


def canary(view: View) -> Diagnosis | None:
    fact = view.canaries
    if fact == OFF:
        return None
    if isinstance(fact, Unknown):
        return unknown(Check.CANARY, fact)
    explanation = describe_canaries(fact)
    match worst_of(fact):
        case CanaryState.OK:
            return ok(Check.CANARY, explanation)
        case CanaryState.LOST:
            return problem(
                Check.CANARY,
                explanation,
                "Run `dlq-handler topology check` to find where the route ends, and `topology apply` to repair it.",
                evidence=[
                    f"worker {one.worker_id}: {one.explanation}"
                    for one in fact
                    if one.state is CanaryState.LOST
                ],
            )
        case CanaryState.UNKNOWN:
            if only_wants_time(fact):
                return unknown(Check.CANARY, Unknown(explanation, UnknownCause.TAKES_TIME), NEXT_CANARY)
            return unknown(Check.CANARY, Unknown(explanation))


def some_of(items: Sequence[str]) -> str:
    rest = len(items) - _SHOWN
    return "; ".join(items[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
