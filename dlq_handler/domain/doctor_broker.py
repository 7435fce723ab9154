"""What `dlq-handler doctor` says of the broker, and of who takes what from which queue. Pure."""

from collections.abc import Sequence

from dlq_handler.domain.doctor import MANAGEMENT_FIX, Consumers, some_of
from dlq_handler.domain.observation import Looked, Observation, Part
from dlq_handler.domain.topology_check import CheckedTopology, Conclusion, QueueRole
from dlq_handler.domain.topology_finding import Finding, Severity, listed
from dlq_handler.domain.topology_walk import Answer

SIDECAR = Looked(Part.US, "sidecar")
BROKER = Looked(Part.BROKER, "broker")
ALARMS = Looked(Part.BROKER, "broker alarm")
BROKER_RIGHTS = Looked(Part.BROKER, "broker rights")
TOPOLOGY = Looked(Part.BROKER, "topology")
FOREIGN_CONSUMERS = Looked(Part.BROKER, "foreign consumers")
COMPLETIONS = Looked(Part.EXECUTOR, "completions")
REQUESTS = Looked(Part.EXECUTOR, "requests")


def broker(trouble: str | None) -> Observation:
    if trouble is None:
        return BROKER.ok("answers")
    return BROKER.problem(trouble, "start RabbitMQ, or mend message_queue.url")


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
        case Conclusion.CANNOT_TELL:
            what = limits[0] if limits else "some of what was read does not tell"
            return TOPOLOGY.cannot_tell(what, MANAGEMENT_FIX, notes=(*limits[1:], *notes))
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


def sidecar(taken: Consumers | None, *, queue: str, own_prefix: str) -> Observation:
    if taken is None:
        return SIDECAR.problem(
            f"there is no queue {queue!r}", "start `dlq-handler run`, which makes and consumes it"
        )
    if taken.count == 0:
        return SIDECAR.problem(
            f"no replica consumes {queue!r}, where {taken.waiting_in_words}",
            "start `dlq-handler run`; if one runs, its /readyz says what it waits for",
        )
    if taken.tags is None:
        return SIDECAR.cannot_tell(
            f"{taken.count} consumer(s) of {queue!r}, where {taken.waiting_in_words}; their owners are unknown",
            taken.way_to_tags,
        )
    ours = sum(tag.startswith(own_prefix) for tag in taken.tags)
    if ours:
        return SIDECAR.ok(f"{ours} replica(s) consume {queue!r}, where {taken.waiting_in_words}")
    return SIDECAR.problem(
        f"none of the {taken.count} consumer(s) of {queue!r} is a replica of dlq-handler; {taken.waiting_in_words}",
        "start `dlq-handler run`; if one runs, its /readyz says what it waits for",
    )


def foreign_consumers(taken: Consumers | None, *, queue: str, own_prefix: str) -> Observation:
    if taken is None or taken.count == 0:
        return FOREIGN_CONSUMERS.ok(f"nobody else consumes {queue!r}")
    if taken.tags is None:
        return FOREIGN_CONSUMERS.cannot_tell(
            f"whose consumers those of {queue!r} are is not told", taken.way_to_tags
        )
    foreign = sorted(tag for tag in taken.tags if not tag.startswith(own_prefix))
    if not foreign:
        return FOREIGN_CONSUMERS.ok(f"nobody else consumes {queue!r}")
    return FOREIGN_CONSUMERS.problem(
        f"{listed(foreign)} also consume(s) {queue!r}: a stock executor fails executions without a notice, and drops "
        "letters on a database error",
        "set dlq_handler.intake.queue to a queue of our own, such as attune.dlx.sidecar.queue",
    )


def broker_alarms(alarms: Sequence[str]) -> Observation:
    if not alarms:
        return ALARMS.ok("no node has an alarm")
    return ALARMS.problem(
        f"{some_of(alarms)}: it takes no message, neither a dispatch nor a notice of ours",
        "free memory or disk on that node; messages flow again by themselves",
    )


# What it means that nobody takes from a queue of the host's.
HARM = {
    COMPLETIONS: "slots are not freed and workflows do not go on, whoever ends an execution",
    REQUESTS: "nothing is scheduled",
}


def host_queue(looked: Looked, taken: Consumers | None, *, queue: str) -> Observation:
    harm = HARM[looked]
    if taken is None:
        return looked.problem(
            f"there is no queue {queue!r}: {harm}", "start Attune's executor, which declares it"
        )
    if taken.count == 0:
        return looked.problem(
            f"nobody consumes {queue!r}, where {taken.ready} wait(s): {harm}", "start Attune's executor"
        )
    return looked.ok(f"{taken.count} consume(s) {queue!r}, where {taken.ready} wait(s)")
