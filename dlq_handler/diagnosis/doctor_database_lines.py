"""What `dlq-handler doctor` says of the database, of the workers in it, and of all clocks. Pure."""

from collections.abc import Mapping, Sequence

from dlq_handler.diagnosis.doctor_lines import MANAGEMENT_FIX, some_of
from dlq_handler.diagnosis.observation import Component, Looked, Observation
from dlq_handler.diagnosis.view import TablesSeen
from dlq_handler.topology.finding import listed

DATABASE = Looked(Component.DATABASE, "database")
HOST_TABLES = Looked(Component.DATABASE, "host tables")
OWN_TABLES = Looked(Component.DATABASE, "own tables")
DATABASE_RIGHTS = Looked(Component.DATABASE, "database rights")
MACHINE_CLOCK = Looked(Component.DLQ_HANDLER, "clock")
BROKER_CLOCK = Looked(Component.BROKER, "broker clock")
WORKERS = Looked(Component.WORKERS, "workers")
WORKER_CLOCKS = Looked(Component.WORKERS, "worker clocks")

# A letter that does not say which attempt it was is decided by the broker's time of death against the row's own time,
# with so much allowance; no heartbeat is given more by Attune's scheduler.
CLOCK_SECONDS = 5.0
# The Date of RabbitMQ's management API has whole seconds, and is renewed once a second: the time it shows is 0 to 2 s
# old. Taken as it is, the broker of the same machine would be called 1 or 2 s behind.
DATE_LAG_SECONDS = 2.0


DATABASE_FIX = "start PostgreSQL, or correct database.url"

# What a question that needs no row may take. A batch asks several that need many.
SLOW_SECONDS = 1.0


def database(
    trouble: str | None, *, is_in_recovery: bool = False, answer_seconds: float = 0.0
) -> Observation:
    """`answer_seconds`: how long it took to say its name."""
    if trouble is not None:
        is_unreachable = "unreachable" in trouble or "no answer" in trouble
        return DATABASE.problem(
            trouble,
            DATABASE_FIX,
            headline="The database is unreachable" if is_unreachable else "The database cannot be used",
        )
    if is_in_recovery:
        return DATABASE.problem(
            "answers, but is a standby: nothing can be written",
            "point database.url at the primary",
            headline="The database is a read-only standby",
        )
    if answer_seconds > SLOW_SECONDS:
        return DATABASE.problem(
            f"a query that reads no row took {answer_seconds:.1f} s; dead letters are processed slowly or not at all",
            "find out what keeps PostgreSQL busy: locks, checkpoints, its disk or the network",
            headline="The database answers slowly",
        )
    return DATABASE.ok("answers")


def host_tables(missing: Sequence[str], *, schema: str) -> Observation:
    if not missing:
        return HOST_TABLES.ok(f"what we need of Attune's tables is in schema {schema!r}")
    return HOST_TABLES.problem(
        f"schema {schema!r} has no {listed(missing)}",
        "database.url and database.schema must name Attune's own; if they do, this is an Attune we do not know",
    )


def own_tables(seen: TablesSeen) -> Observation:
    place = f"schema {seen.schema!r} is at version {seen.version or 'none'}"
    if seen.problem is None:
        return OWN_TABLES.ok(place, notes=[seen.note] if seen.note else [])
    return OWN_TABLES.problem(place, seen.problem)


def database_rights(missing: Sequence[str], *, role: str) -> Observation:
    if not missing:
        return DATABASE_RIGHTS.ok(f"role {role!r} may do all that we need")
    return DATABASE_RIGHTS.problem(
        f"role {role!r} lacks {some_of(missing)}",
        f"have an administrator run what `dlq-handler grants --role {role}` prints",
    )


def machine_clock(ahead_seconds: float, *, error_seconds: float) -> Observation:
    apart = _apart(ahead_seconds, error_seconds)
    if abs(ahead_seconds) <= CLOCK_SECONDS + error_seconds:
        return MACHINE_CLOCK.ok(f"this machine is {apart} the database")
    return MACHINE_CLOCK.problem(
        f"this machine is {apart} the database: the log shows other times than the rows",
        "synchronize both clocks (NTP)",
    )


def broker_clock(
    ahead_seconds: float | None, *, error_seconds: float = 0.0, trouble: str = ""
) -> Observation:
    """`ahead_seconds`: by the Date of the management API."""
    if ahead_seconds is None:
        return BROKER_CLOCK.unknown(trouble, MANAGEMENT_FIX)
    ahead_seconds += DATE_LAG_SECONDS / 2
    error_seconds += DATE_LAG_SECONDS / 2
    apart = _apart(ahead_seconds, error_seconds)
    if abs(ahead_seconds) <= CLOCK_SECONDS + error_seconds:
        return BROKER_CLOCK.ok(f"the broker is {apart} the database")
    return BROKER_CLOCK.problem(
        f"the broker is {apart} the database: dead letters without a stamp are decided by both clocks",
        "synchronize both clocks (NTP)",
    )


def workers(count: int, reporting: int) -> Observation:
    """`reporting`: those that sent a heartbeat within a day."""
    if reporting:
        return WORKERS.ok(f"{reporting} of {count} registered reported within a day")
    return WORKERS.problem(
        f"none of {count} registered reported within a day" if count else "none is registered",
        "start a worker; if some run, database.url and database.schema are not theirs",
    )


def worker_clocks(ahead: Mapping[int, float]) -> Observation:
    """`ahead`: by how many seconds a worker's last heartbeat lies in the future of the database."""
    fast = {worker: seconds for worker, seconds in ahead.items() if seconds > CLOCK_SECONDS}
    if not fast:
        return WORKER_CLOCKS.ok("no heartbeat lies in the future")
    worker, seconds = max(fast.items(), key=lambda item: item[1])
    return WORKER_CLOCKS.problem(
        f"{len(fast)} worker(s) report from the future, worker {worker} by {seconds:.0f} s: Attune's scheduler takes "
        "that for stale, and we notice their end late",
        "have the workers' machines keep their time (NTP)",
    )


def _apart(ahead_seconds: float, error_seconds: float) -> str:
    if abs(ahead_seconds) < 1 + error_seconds:
        # No direction: what was measured is within the error of the measurement.
        return f"less than {1 + 2 * error_seconds:.0f} s from"
    return f"{abs(ahead_seconds):.0f} s {'ahead of' if ahead_seconds > 0 else 'behind'}"
