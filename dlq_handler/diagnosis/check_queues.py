"""Checks of the intake queue and of the queues that the executor must consume. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from dlq_handler.diagnosis.checks import Check
from dlq_handler.diagnosis.diagnosis import MANAGEMENT_ACTION, Diagnosis, Health, ok, problem, unknown
from dlq_handler.diagnosis.view import OFF, QueueFact, Unknown, UnknownCause, View
from dlq_handler.host.owners import HostService
from dlq_handler.timeouts.decide_unscheduled import REPUBLISHING_IS_OFF
from dlq_handler.topology.consumers import Consumers
from dlq_handler.topology.drift import listed
from dlq_handler.topology.system_queues import OWNERS

# The statistics of the management API are some seconds old. Right after a start nothing is broken yet.
_LISTED_LATE = (
    "Run the command again in ten seconds: the management API lists a new consumer late. If it stays so, its user "
    "needs the tag 'monitoring'."
)


class IntakeState(StrEnum):
    """Who consumes the intake queue."""

    MISSING = "missing"
    UNCONSUMED = "unconsumed"
    UNIDENTIFIED = "unidentified"
    """It has consumers, and the management API does not say whose."""
    OTHERS_ONLY = "others_only"
    CONSUMED = "consumed"
    """At least one replica consumes it."""

    @property
    def is_without_replica(self) -> bool:
        return self in (IntakeState.MISSING, IntakeState.UNCONSUMED, IntakeState.OTHERS_ONLY)


def intake_state(fact: QueueFact, own_prefix: str) -> IntakeState:
    consumers = fact.consumers
    if consumers is None:
        return IntakeState.MISSING
    if consumers.count == 0:
        return IntakeState.UNCONSUMED
    if consumers.tags is None:
        return IntakeState.UNIDENTIFIED
    return IntakeState.CONSUMED if replicas_of(consumers, own_prefix) else IntakeState.OTHERS_ONLY


def replicas_of(consumers: Consumers, own_prefix: str) -> int:
    """Consumers that are replicas, as far as that is known."""
    return sum(tag.startswith(own_prefix) for tag in consumers.tags or ())


def describe_intake(fact: QueueFact, own_prefix: str) -> str:
    """As a clause without its full stop."""
    consumers, queue = fact.consumers, fact.name
    if consumers is None:
        return f"there is no queue {queue!r}"
    waiting = describe_waiting(consumers)
    match intake_state(fact, own_prefix):
        case IntakeState.MISSING | IntakeState.UNCONSUMED:
            return f"no replica consumes {queue!r}, where {waiting}"
        case IntakeState.UNIDENTIFIED:
            return f"{consumers.count} consumer(s) of {queue!r}, where {waiting}; their owners are unknown"
        case IntakeState.OTHERS_ONLY:
            return f"none of the {consumers.count} consumer(s) of {queue!r} is a replica; {waiting}"
        case IntakeState.CONSUMED:
            return f"{replicas_of(consumers, own_prefix)} replica(s) consume {queue!r}, where {waiting}"


def describe_waiting(consumers: Consumers) -> str:
    waiting = consumers.waiting
    number = str(waiting) if consumers.unacknowledged is not None else f"at least {waiting}"
    plural, verb = ("", "waits") if waiting == 1 else ("s", "wait")
    if consumers.has_canaries and waiting:
        return f"{number} message{plural} (canaries included) {verb}"
    return f"{number} dead letter{plural} {verb}"


def unidentified(check: Check, fact: QueueFact, explanation: str) -> Diagnosis:
    """For a queue with consumers whose owners are unknown."""
    if fact.consumers is not None and fact.consumers.lists_fewer:
        return unknown(check, Unknown(explanation, UnknownCause.TAKES_TIME), _LISTED_LATE)
    return unknown(check, Unknown(explanation), MANAGEMENT_ACTION)


def other_consumers(view: View) -> Diagnosis | None:
    fact = view.intake
    if fact == OFF:
        return None
    if isinstance(fact, Unknown):
        return unknown(Check.OTHER_CONSUMERS, fact)
    consumers = fact.consumers
    if consumers is not None and consumers.count and consumers.tags is None:
        return unidentified(
            Check.OTHER_CONSUMERS, fact, f"the owners of the consumers of {fact.name!r} are unknown"
        )
    others = sorted(
        tag for tag in (consumers.tags if consumers else None) or () if not tag.startswith(view.own_prefix)
    )
    if not others:
        return ok(Check.OTHER_CONSUMERS, f"No other program consumes {fact.name!r}.")
    return problem(
        Check.OTHER_CONSUMERS,
        f"{listed(others)} also consume(s) {fact.name!r}. A stock executor fails executions without a completion "
        "event, and drops dead letters on a database error.",
        "Set dlq_handler.intake.queue to a queue that only dlq-handler consumes, such as attune.dlx.sidecar.queue.",
    )


# The consequence when a queue of the host has no consumer.
_CONSEQUENCE = {
    Check.COMPLETIONS: "slots are not freed and workflows do not continue",
    Check.REQUESTS: "nothing is scheduled",
}


def completions(view: View) -> Diagnosis:
    return _host_queue(Check.COMPLETIONS, view.completions)


def requests(view: View) -> Diagnosis:
    found, stuck = _host_queue(Check.REQUESTS, view.requests), view.at_request_limit
    if not view.republishes_requests:
        found = replace(found, evidence=(*found.evidence, REPUBLISHING_IS_OFF))
    if found.health is not Health.OK or isinstance(stuck, Unknown) or stuck == 0:
        return found
    executions = f"{stuck} execution{' was' if stuck == 1 else 's were'}"
    if not view.republishes_requests:
        return problem(
            Check.REQUESTS,
            f"{executions} not scheduled in time; {REPUBLISHING_IS_OFF}.",
            "Run the executions again or cancel them in Attune, or set that setting to true.",
            headline="Executions are requested and not scheduled",
        )
    return problem(
        Check.REQUESTS,
        f"{executions} requested again as often as dlq_handler.monitor.republish_limit allows and never scheduled.",
        "Start workers that can run their actions, then raise that limit or run the executions again.",
        headline="Executions are requested again and never scheduled",
    )


def system_queues(view: View) -> Diagnosis:
    """The queues that no other check examines."""
    fact = view.system_queues
    if isinstance(fact, Unknown):
        return unknown(Check.SYSTEM_QUEUES, fact)
    facts = (view.completions, view.requests, view.intake)
    examined = {one.name for one in facts if isinstance(one, QueueFact)}
    missing = [name for name in fact.missing if name not in examined]
    if missing:
        services = [service for service in HostService if any(OWNERS[name] == service for name in missing)]
        return problem(
            Check.SYSTEM_QUEUES,
            f"There {_is_or_are(missing)} {listed(missing)}. The broker confirms messages for a missing queue and "
            "drops them.",
            f"Restart {' and '.join(map(_named, services))}: a service declares its queues only when it starts.",
            evidence=(f"{name}: declared by {_named(HostService(OWNERS[name]))}" for name in missing),
        )
    unsure = {name: reason for name, reason in fact.unknown.items() if name not in examined}
    if unsure:
        explanation = f"{listed(unsure)}: {next(iter(unsure.values()))}"
        return unknown(Check.SYSTEM_QUEUES, Unknown(explanation, UnknownCause.TAKES_TIME), MANAGEMENT_ACTION)
    return ok(Check.SYSTEM_QUEUES, "Every queue exists that Attune's services declare at their start.")


def count_missing_queues(view: View) -> int | None:
    """Of all queues that the host's services declare at their start; None: unknown."""
    return None if isinstance(view.system_queues, Unknown) else view.system_queues.missing_count


def _is_or_are(queues: Sequence[str]) -> str:
    return "is no queue" if len(queues) == 1 else f"are {len(queues)} queues missing:"


def _named(service: HostService) -> str:
    return "any service of Attune" if service is HostService.COMMON else f"Attune's {service.value}"


def _host_queue(check: Check, fact: QueueFact | Unknown) -> Diagnosis:
    if isinstance(fact, Unknown):
        return unknown(check, fact)
    consumers, consequence = fact.consumers, _CONSEQUENCE[check]
    if consumers is None:
        return problem(
            check,
            f"There is no queue {fact.name!r}: {consequence}.",
            "Start Attune's executor, or restart it if it runs: it declares this queue at its start.",
        )
    if consumers.count == 0:
        return problem(
            check,
            f"{fact.name!r} has no consumer, and {consumers.ready} message(s) wait there: {consequence}.",
            "Restart Attune's executor: it does not reconnect to RabbitMQ, so it may run and not consume.",
        )
    return ok(
        check, f"{consumers.count} consumer(s) of {fact.name!r}, where {consumers.ready} message(s) wait."
    )
