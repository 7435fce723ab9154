"""Drift of the shadow queue, and the effect of shadow mode on the other queues. Pure."""

from collections.abc import Iterator, Mapping

from dlq_handler.broker.admin.snapshot import Snapshot
from dlq_handler.topology.blueprint import ShadowLimits
from dlq_handler.topology.finding import Expectation, Finding, Severity
from dlq_handler.topology.routing import ALTERNATE_EXCHANGE


def find_shadow_drift(snapshot: Snapshot, expected: Expectation, limits: ShadowLimits) -> Iterator[Finding]:
    blueprint = expected.blueprint
    subject = f"shadow queue {blueprint.intake_queue!r}"
    yield Finding(
        severity=Severity.NOTE,
        subject=subject,
        is_now="receives copies of dead letters: they are decided, but no execution is ended and no event published",
        wanted="dlq_handler.shadow.enabled: false, once you trust the records",
        way_out="`dlq-handler letters list` shows the decisions",
    )
    queue = snapshot.queues.get(blueprint.intake_queue)
    if queue is None:
        yield Finding(
            severity=expected.broken_route,
            subject=subject,
            is_now="does not exist",
            wanted=f"a durable queue with {_listed(limits.arguments)}",
            way_out="run `dlq-handler topology apply`",
        )
    elif _differs(queue.arguments, limits.arguments, all_are_known=snapshot.is_complete):
        yield Finding(
            severity=Severity.DRIFT,
            subject=subject,
            is_now=f"declared with {_listed(queue.arguments) or 'no arguments'}",
            wanted=_listed(limits.arguments),
            way_out="arguments are fixed at creation: delete the queue, it holds copies only, and run "
            "`dlq-handler topology apply`",
        )
    exchange = snapshot.exchanges.get(blueprint.dead_letter_exchange)
    alternate = exchange.text(ALTERNATE_EXCHANGE) if exchange is not None else None
    if alternate is not None:
        yield Finding(
            severity=Severity.DRIFT,
            subject=f"exchange {blueprint.dead_letter_exchange!r}",
            is_now=f"has the alternate exchange {alternate!r}, which receives only messages that no queue is bound for",
            wanted="no alternate exchange while shadow mode receives copies",
            way_out="dead letters with a key of the shadow queue no longer reach it: bind the queue behind it with the "
            "workers' keys as well",
        )


def _differs(arguments: Mapping[str, object], wanted: Mapping[str, object], *, all_are_known: bool) -> bool:
    """Without the management API, AMQP shows only some arguments: one that is not shown is unknown, not missing."""
    known = [name for name in wanted if all_are_known or name in arguments]
    return any(arguments.get(name) != wanted[name] for name in known)


def _listed(arguments: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(arguments.items()))
