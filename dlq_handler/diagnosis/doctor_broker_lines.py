"""What `dlq-handler doctor` says of the broker, and of who takes what from which queue. Pure."""

from collections.abc import Sequence

from dlq_handler.diagnosis.doctor_lines import MANAGEMENT_FIX, some_of
from dlq_handler.diagnosis.observation import Component, Looked, Observation
from dlq_handler.timeouts.case import RUN_GRACE_SECONDS
from dlq_handler.topology.check import CheckedTopology, Conclusion, QueueRole
from dlq_handler.topology.consumers import Consumers
from dlq_handler.topology.finding import Finding, Severity, listed
from dlq_handler.topology.walk import Answer

SIDECAR = Looked(Component.DLQ_HANDLER, "sidecar")
BROKER = Looked(Component.BROKER, "broker")
ALARMS = Looked(Component.BROKER, "broker alarm")
BROKER_RIGHTS = Looked(Component.BROKER, "broker rights")
TOPOLOGY = Looked(Component.BROKER, "topology")
OTHER_CONSUMERS = Looked(Component.BROKER, "other consumers")
RESTARTS = Looked(Component.WORKERS, "worker restarts")
COMPLETIONS = Looked(Component.EXECUTOR, "completions")
REQUESTS = Looked(Component.EXECUTOR, "requests")

# The management API's statistics are some seconds old. Right after a start nothing is broken yet.
_LISTED_LATE = (
    "look again in ten seconds: the management API lists a new consumer late; if it stays so, its user needs the tag "
    "'monitoring'"
)


def broker(trouble: str | None) -> Observation:
    if trouble is None:
        return BROKER.ok("answers")
    return BROKER.problem(trouble, "start RabbitMQ, or repair message_queue.url")


def broker_rights(missing: Sequence[str]) -> Observation:
    if not missing:
        return BROKER_RIGHTS.ok("our user may do all that we need")
    return BROKER_RIGHTS.problem(
        f"our user lacks {some_of(missing)}",
        "have an administrator run the `rabbitmqctl set_permissions` that `dlq-handler grants` prints",
    )


def topology(checked: CheckedTopology, limits: Sequence[str]) -> Observation:
    notes = tuple(map(_note, checked.findings))
    match checked.conclusion:
        case Conclusion.FINE:
            return TOPOLOGY.ok("what dies in a worker's queue arrives", notes=(*limits, *notes))
        case Conclusion.UNKNOWN:
            what = limits[0] if limits else "some of what was read does not tell"
            return TOPOLOGY.unknown(what, MANAGEMENT_FIX, notes=(*limits[1:], *notes))
        case Conclusion.HOLE:
            holes = [
                one.queue
                for one in checked.queues
                if one.arrives is Answer.HOLE and one.role is QueueRole.WORKER
            ]
            what = f"what dies in {listed(holes)} is lost" if holes else "an execution can hang"
            return TOPOLOGY.problem(
                what,
                "`dlq-handler run` binds what is missing, `dlq-handler topology apply` does it now; "
                "`dlq-handler topology check` tells more",
                notes=(*limits, *notes),
            )


def _note(finding: Finding) -> str:
    # It is shown as a note anyway; only what is more than that needs to say so.
    weight = "" if finding.severity is Severity.NOTE else f"{finding.severity}: "
    way_out = f"; way out: {finding.way_out}" if finding.way_out else ""
    return f"{weight}{finding.subject}: {finding.is_now}{way_out}"


def describe_waiting(taken: Consumers) -> str:
    number = str(taken.waiting) if taken.unacknowledged is not None else f"at least {taken.waiting}"
    plural, verb = ("", "waits") if taken.waiting == 1 else ("s", "wait")
    if taken.has_canaries and taken.waiting:
        return f"{number} message{plural} (canaries included) {verb}"
    return f"{number} dead letter{plural} {verb}"


def _way_to_tags(taken: Consumers) -> str:
    """What to do where the consumer tags are unknown."""
    return _LISTED_LATE if taken.lists_fewer else MANAGEMENT_FIX


def sidecar(taken: Consumers | None, *, queue: str, own_prefix: str) -> Observation:
    if taken is None:
        return SIDECAR.problem(
            f"there is no queue {queue!r}", "start `dlq-handler run`, which makes and consumes it"
        )
    if taken.count == 0:
        return SIDECAR.problem(
            f"no replica consumes {queue!r}, where {describe_waiting(taken)}",
            "start `dlq-handler run`; if one runs, its /readyz says what it waits for",
        )
    if taken.tags is None:
        return SIDECAR.unknown(
            f"{taken.count} consumer(s) of {queue!r}, where {describe_waiting(taken)}; their owners are unknown",
            _way_to_tags(taken),
        )
    ours = sum(tag.startswith(own_prefix) for tag in taken.tags)
    if ours:
        return SIDECAR.ok(f"{ours} replica(s) consume {queue!r}, where {describe_waiting(taken)}")
    return SIDECAR.problem(
        f"none of the {taken.count} consumer(s) of {queue!r} is a replica of dlq-handler; {describe_waiting(taken)}",
        "start `dlq-handler run`; if one runs, its /readyz says what it waits for",
    )


def other_consumers(taken: Consumers | None, *, queue: str, own_prefix: str) -> Observation:
    if taken is None or taken.count == 0:
        return OTHER_CONSUMERS.ok(f"nobody else consumes {queue!r}")
    if taken.tags is None:
        return OTHER_CONSUMERS.unknown(
            f"whose consumers those of {queue!r} are is not told", _way_to_tags(taken)
        )
    others = sorted(tag for tag in taken.tags if not tag.startswith(own_prefix))
    if not others:
        return OTHER_CONSUMERS.ok(f"nobody else consumes {queue!r}")
    return OTHER_CONSUMERS.problem(
        f"{listed(others)} also consume(s) {queue!r}: a stock executor fails executions without a notice, and drops "
        "letters on a database error",
        "set dlq_handler.intake.queue to a queue of our own, such as attune.dlx.sidecar.queue",
    )


def restarts(*, reconnects: bool, run_limit_seconds: float, trouble: str | None) -> Observation:
    """`trouble`: why the connections of consumers are unknown."""
    if reconnects:
        return RESTARTS.ok(
            "not detected: dlq_handler.worker.reconnects is true, so a new connection is no new process",
            notes=["set dlq_handler.worker.reconnects to false for Attune, whose workers never reconnect"],
        )
    limit = (
        f"its own limit ({run_limit_seconds:g} s where it has none, dlq_handler.worker.run_limit_seconds) + "
        f"{RUN_GRACE_SECONDS:g} s"
    )
    if trouble is not None:
        return RESTARTS.unknown(
            f"a worker that is restarted under its name cannot be detected ({trouble}); its executions are abandoned "
            f"at {limit}",
            MANAGEMENT_FIX,
        )
    return RESTARTS.ok(
        f"detected by a new consumer connection (dlq_handler.worker.reconnects is false); a run that may belong to a "
        f"former process is abandoned at {limit}"
    )


def broker_alarms(alarms: Sequence[str]) -> Observation:
    if not alarms:
        return ALARMS.ok("no node has an alarm")
    return ALARMS.problem(
        f"{some_of(alarms)}: it takes no message, neither a dispatch nor a notice of ours",
        "free memory or disk on that node; messages flow again by themselves",
    )


# What follows when a queue of the host's has no consumer.
HARM = {
    COMPLETIONS: "slots are not freed and workflows do not continue",
    REQUESTS: "nothing is scheduled",
}


def host_queue(looked: Looked, taken: Consumers | None, *, queue: str) -> Observation:
    harm = HARM[looked]
    if taken is None:
        return looked.problem(
            f"there is no queue {queue!r}: {harm}",
            "start Attune's executor, or restart it if it runs: it declares this queue at its start",
        )
    if taken.count == 0:
        return looked.problem(
            f"{queue!r} has no consumer, and {taken.ready} message(s) wait there: {harm}",
            "restart Attune's executor: it does not reconnect to RabbitMQ, so it may run and not consume",
        )
    return looked.ok(f"{taken.count} consume(s) {queue!r}, where {taken.ready} wait(s)")
