"""What `dlq-handler doctor` says of what was seen: one pure decision for each line that it prints.

The facts are gathered by services/doctor*.py; a server that did not answer is a fact too. What rests on it is then
"cannot tell", and only the server itself is the problem. Here is what is ours; the database's and the broker's lines
are beside it.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from dlq_handler.domain.judge_canary import CanaryState, WorkerCanary, in_words, only_wants_time, worst_of
from dlq_handler.domain.observation import Looked, Observation, Part

SETTINGS = Looked(Part.US, "settings")
CANARY = Looked(Part.BROKER, "canary")

# Its statistics are some seconds old: whoever has just started would be told to mend what is not broken.
LISTED_LATE = (
    "look again in ten seconds: the management API lists a new consumer late; if it stays so, its user needs the tag "
    "'monitoring'"
)
MANAGEMENT_FIX = (
    "let us reach RabbitMQ's management API (dlq_handler.broker.management_url) with the tag 'monitoring'"
)
MEND_FIRST = "mend that first, then ask again"
# Nothing is broken: to tell somebody to mend it sends them to look for what is not there.
NEXT_CANARY = (
    "wait for the next canary: one is sent every minute, or as dlq_handler.canary.interval_seconds says"
)

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumers:
    """Who takes messages from a queue, as far as it could be seen."""

    count: int
    ready: int
    tags: tuple[str, ...] | None = None
    """None: the management API does not tell."""
    lists_fewer: bool = False
    """It answers, and knows of fewer than there are."""
    unacknowledged: int | None = 0
    """Messages that consumers hold. None: unknown, because the management API is not available."""
    own_unacknowledged: int = 0
    """Those of them that this replica holds; 0 in a command, which holds none."""
    has_canaries: bool = False
    """True: canaries are sent to this queue too, and its own count includes them."""

    @property
    def waiting(self) -> int:
        """Messages in the queue, ready or unacknowledged; at least this many where the second number is unknown."""
        return self.ready + max(self.unacknowledged or 0, self.own_unacknowledged)

    @property
    def waiting_in_words(self) -> str:
        number = str(self.waiting) if self.unacknowledged is not None else f"at least {self.waiting}"
        plural, verb = ("", "waits") if self.waiting == 1 else ("s", "wait")
        if self.has_canaries and self.waiting:
            return f"{number} message{plural} (canaries included) {verb}"
        return f"{number} dead letter{plural} {verb}"

    @property
    def way_to_tags(self) -> str:
        return LISTED_LATE if self.lists_fewer else MANAGEMENT_FIX


def settings(warnings: Sequence[str]) -> Observation:
    return SETTINGS.ok("can be used", notes=warnings)


def without_database(looked: Looked) -> Observation:
    return looked.cannot_tell(
        "the database is unreachable", "start the database or correct its URL, then ask again"
    )


def without_broker(looked: Looked) -> Observation:
    return looked.cannot_tell("the broker does not answer", "mend the broker first, then ask again")


def canary(canaries: Collection[WorkerCanary], trouble: str | None = None) -> Observation:
    """`trouble`: why none could be sent, or none could be seen."""
    if trouble is not None:
        return CANARY.cannot_tell(trouble, MEND_FIRST)
    words = in_words(canaries)
    match worst_of(canaries):
        case CanaryState.OK:
            return CANARY.ok(words.removeprefix("ok: "))
        case CanaryState.LOST:
            return CANARY.problem(
                words,
                "`dlq-handler topology check` tells where it breaks off; `topology apply` binds what is missing",
            )
        case CanaryState.CANNOT_TELL:
            fix = NEXT_CANARY if only_wants_time(canaries) else MEND_FIRST
            return CANARY.cannot_tell(words.removeprefix("cannot tell: "), fix)


def some_of(items: Sequence[str]) -> str:
    rest = len(items) - _SHOWN
    return "; ".join(items[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
