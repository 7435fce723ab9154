"""What `dlq-handler doctor` says of what was seen: one pure decision for each line that it prints.

The facts are gathered by services/doctor*.py; a server that did not answer is a fact too. What rests on it is then
"unknown", and only the server itself is the problem. Here is what is ours; the database's and the broker's lines
are beside it.
"""

from collections.abc import Collection, Sequence

from dlq_handler.diagnosis.observation import Component, Looked, Observation
from dlq_handler.topology.decide_canary import CanaryState, WorkerCanary, in_words, only_wants_time, worst_of

SETTINGS = Looked(Component.DLQ_HANDLER, "settings")
CANARY = Looked(Component.BROKER, "canary")

MANAGEMENT_FIX = (
    "let us reach RabbitMQ's management API (dlq_handler.broker.management_url) with the tag 'monitoring'"
)
REPAIR_FIRST = "repair that first, then ask again"
# Nothing is broken: to tell somebody to repair it sends them to look for what is not there.
NEXT_CANARY = (
    "wait for the next canary: one is sent every minute, or as dlq_handler.canary.interval_seconds says"
)

_SHOWN = 5


def settings(warnings: Sequence[str]) -> Observation:
    return SETTINGS.ok("can be used", notes=warnings)


def without_database(looked: Looked) -> Observation:
    return looked.unknown(
        "the database is unreachable", "start the database or correct its URL, then ask again"
    )


def without_broker(looked: Looked) -> Observation:
    return looked.unknown("the broker does not answer", "repair the broker first, then ask again")


def canary(canaries: Collection[WorkerCanary], trouble: str | None = None) -> Observation:
    """`trouble`: why none could be sent, or none could be seen."""
    if trouble is not None:
        return CANARY.unknown(trouble, REPAIR_FIRST)
    words = in_words(canaries)
    match worst_of(canaries):
        case CanaryState.OK:
            return CANARY.ok(words.removeprefix("ok: "))
        case CanaryState.LOST:
            return CANARY.problem(
                words,
                "`dlq-handler topology check` tells where it breaks off; `topology apply` binds what is missing",
            )
        case CanaryState.UNKNOWN:
            fix = NEXT_CANARY if only_wants_time(canaries) else REPAIR_FIRST
            return CANARY.unknown(words.removeprefix("unknown: "), fix)


def some_of(items: Sequence[str]) -> str:
    rest = len(items) - _SHOWN
    return "; ".join(items[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
