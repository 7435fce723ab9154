"""The checks that only `doctor` makes: settings, rights, clocks, host tables, restarts, a canary run. Pure."""

from collections.abc import Iterator

from dlq_handler.diagnosis.check_servers import some_of
from dlq_handler.diagnosis.checks import Check
from dlq_handler.diagnosis.diagnosis import MANAGEMENT_ACTION, Diagnosis, ok, problem, unknown
from dlq_handler.diagnosis.doctor_facts import ClockFact, DoctorFacts
from dlq_handler.diagnosis.view import OFF, Unknown, View
from dlq_handler.timeouts.case import RUN_GRACE_SECONDS
from dlq_handler.topology.canary_run import CanaryRunReport, RunConclusion
from dlq_handler.topology.drift import listed
from dlq_handler.workers.availability import is_silent_for_a_day

# A dead letter without an attempt is decided by the broker's time of death against the row's own time, with this
# allowance. Attune's scheduler gives a heartbeat no more.
CLOCK_SECONDS = 5.0

_KEEP_TIME = "Synchronize both clocks (NTP)."


def examine(view: View, facts: DoctorFacts) -> Iterator[Diagnosis]:
    yield ok(Check.SETTINGS, "The settings can be used.", evidence=facts.warnings)
    yield _host_tables(facts)
    yield _broker_rights(facts)
    yield _clock(facts)
    yield _broker_clock(facts)
    yield _worker_clocks(view)
    yield _restarts(facts)
    if facts.canary != OFF:
        yield _canary(facts.canary)


def _host_tables(facts: DoctorFacts) -> Diagnosis:
    missing = facts.missing_of_host
    if isinstance(missing, Unknown):
        return unknown(Check.HOST_TABLES, missing)
    if not missing:
        return ok(Check.HOST_TABLES, f"Schema {facts.host_schema!r} has the tables that dlq-handler needs.")
    return problem(
        Check.HOST_TABLES,
        f"Schema {facts.host_schema!r} has no {listed(missing)}.",
        "Set database.url and database.schema to Attune's own. If they are, this version of Attune is not supported.",
    )


def _broker_rights(facts: DoctorFacts) -> Diagnosis:
    missing = facts.missing_broker_rights
    if isinstance(missing, Unknown):
        return unknown(Check.BROKER_RIGHTS, missing)
    if not missing:
        return ok(Check.BROKER_RIGHTS, "The broker's user has all rights that dlq-handler needs.")
    return problem(
        Check.BROKER_RIGHTS,
        f"The broker's user lacks {some_of(missing)}.",
        "Have an administrator run the `rabbitmqctl set_permissions` that `dlq-handler grants` prints.",
        evidence=missing,
    )


def _clock(facts: DoctorFacts) -> Diagnosis:
    clock = facts.clock
    if isinstance(clock, Unknown):
        return unknown(Check.CLOCK, clock)
    if _is_right(clock):
        return ok(Check.CLOCK, f"The clock of this machine is {_difference(clock)} the database's.")
    return problem(
        Check.CLOCK,
        f"The clock of this machine is {_difference(clock)} the database's: log and records show different times.",
        _KEEP_TIME,
    )


def _broker_clock(facts: DoctorFacts) -> Diagnosis:
    clock = facts.broker_clock
    if isinstance(clock, Unknown):
        return unknown(Check.BROKER_CLOCK, clock)
    if _is_right(clock):
        return ok(Check.BROKER_CLOCK, f"The broker's clock is {_difference(clock)} the database's.")
    return problem(
        Check.BROKER_CLOCK,
        f"The broker's clock is {_difference(clock)} the database's: dead letters without an attempt are decided by "
        "both clocks.",
        _KEEP_TIME,
    )


def _is_right(clock: ClockFact) -> bool:
    return abs(clock.ahead_seconds) <= CLOCK_SECONDS + clock.error_seconds


def _difference(clock: ClockFact) -> str:
    ahead, error = clock.ahead_seconds, clock.error_seconds
    if abs(ahead) < 1 + error:
        # No direction: the difference is within the error of the measurement.
        return f"less than {1 + 2 * error:.0f} s from"
    return f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'}"


def _worker_clocks(view: View) -> Diagnosis:
    if isinstance(view.workers, Unknown):
        return unknown(Check.WORKER_CLOCKS, view.workers)
    workers = [
        one.registered.worker for one in view.workers if not is_silent_for_a_day(one.registered.worker)
    ]
    ahead = {one.id: -(one.heartbeat_age_seconds or 0.0) for one in workers}
    fast = {worker: seconds for worker, seconds in ahead.items() if seconds > CLOCK_SECONDS}
    if not fast:
        return ok(Check.WORKER_CLOCKS, "No heartbeat is in the future.")
    worker, seconds = max(fast.items(), key=lambda item: item[1])
    return problem(
        Check.WORKER_CLOCKS,
        f"Heartbeats of {len(fast)} worker(s) are in the future, that of worker {worker} by {seconds:.0f} s. Attune's "
        "scheduler takes them for old, and dlq-handler notices their end late.",
        "Synchronize the clocks of the workers' machines (NTP).",
    )


def _restarts(facts: DoctorFacts) -> Diagnosis:
    error = facts.restarts
    if isinstance(error, Unknown):
        return unknown(Check.WORKER_RESTARTS, error)
    if facts.reconnects:
        return ok(
            Check.WORKER_RESTARTS,
            "Not detected: dlq_handler.worker.reconnects is true, so a new connection is no new process.",
            evidence=["set dlq_handler.worker.reconnects to false for Attune, whose workers never reconnect"],
        )
    limit = (
        f"its own limit ({facts.run_limit_seconds:g} s where it has none, dlq_handler.worker.run_limit_seconds) + "
        f"{RUN_GRACE_SECONDS:g} s"
    )
    if error is not None:
        why = f"restarts of a worker are not detected ({error}); its executions are abandoned at {limit}"
        return unknown(Check.WORKER_RESTARTS, Unknown(why), MANAGEMENT_ACTION)
    return ok(
        Check.WORKER_RESTARTS,
        "Detected by a new consumer connection (dlq_handler.worker.reconnects is false). An execution that may belong "
        f"to a former process is abandoned at {limit}.",
    )


def _canary(report: CanaryRunReport) -> Diagnosis:
    """Replaces the view's diagnosis of canaries: this run is newer than the replicas' canaries."""
    match report.conclusion:
        case RunConclusion.ARRIVED:
            return ok(Check.CANARY, report.explanation)
        case RunConclusion.NOT_ARRIVED:
            return problem(
                Check.CANARY, report.explanation, report.action or "Run `dlq-handler topology check`."
            )
        case RunConclusion.UNKNOWN:
            action = report.action or "Run `dlq-handler canary run`."
            return unknown(Check.CANARY, Unknown(report.explanation), action)
