"""The list of queues: for each the owner, and whether the broker has it as its owner declares it. Pure."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from dlq_handler.broker.admin.snapshot import TTL_ARGUMENT
from dlq_handler.broker.queue_arguments import TYPE_ARGUMENT

Arguments = Mapping[str, object]


class OwnerKind(StrEnum):
    SERVICE = "service"
    """A service of the host, a worker, or dlq-handler declares it."""
    FLOW = "flow"
    OTHER = "other"
    """dlq-handler does not know its owner."""


class QueueStatus(StrEnum):
    OK = "ok"
    MISSING = "missing"
    """It does not exist, and its owner declares it at every start."""
    ABSENT = "absent"
    """It does not exist, and nothing requires it."""
    DIFFERS = "differs"
    """It exists with other arguments than its owner declares."""
    LEAKED = "leaked"
    """Its flow has stopped or its worker was retired, and the queue could not be deleted."""
    UNKNOWN = "unknown"
    """It is unknown whether it exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownQueue:
    """A queue that dlq-handler knows by name."""

    name: str
    owner_kind: OwnerKind
    owner: str
    arguments: Arguments | None = None
    """Of its declaration; None: any."""
    has_any_ttl: bool = False
    """Each host may declare it with a TTL of its own."""
    is_required: bool = False
    is_leaked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundQueue:
    """What the broker says about it."""

    exists: bool | None
    """None: unknown."""
    arguments: Arguments | None = None
    """None: unknown."""
    ready: int | None = None
    consumers: int | None = None
    explanation: str | None = None
    """Why something of it is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    name: str
    owner_kind: OwnerKind
    owner: str | None
    """None: unknown."""
    exists: bool | None
    arguments: Arguments | None
    ready: int | None
    consumers: int | None
    status: QueueStatus
    explanation: str | None
    """Why something of it is unknown, or what differs. None: everything is known and in order."""


NOT_ASKED = FoundQueue(exists=None, explanation="the broker was not asked about it")


def list_rows(
    known: Iterable[KnownQueue],
    found: Mapping[str, FoundQueue],
    recognize: Callable[[str], KnownQueue | None] = lambda _: None,
) -> tuple[QueueRow, ...]:
    """One row for each queue that is known or found, in the order of owners and numbers.

    `recognize` finds the owner of a queue that is found and not known, by its name.
    """
    by_name: dict[str, KnownQueue] = {}
    for queue in known:
        # A flow may have the queues of a worker: then it is their owner.
        if queue.name not in by_name or queue.owner_kind is OwnerKind.FLOW or queue.is_leaked:
            by_name[queue.name] = queue
    rows = [
        _row(by_name.get(name) or recognize(name), name, found.get(name, NOT_ASKED))
        for name in by_name.keys() | found.keys()
    ]
    return tuple(sorted(rows, key=_place))


def _row(known: KnownQueue | None, name: str, found: FoundQueue) -> QueueRow:
    status, difference = _status(known, found)
    return QueueRow(
        name=name,
        owner_kind=known.owner_kind if known else OwnerKind.OTHER,
        owner=known.owner if known else None,
        exists=found.exists,
        arguments=found.arguments,
        ready=found.ready,
        consumers=found.consumers,
        status=status,
        explanation=difference or found.explanation,
    )


def _status(known: KnownQueue | None, found: FoundQueue) -> tuple[QueueStatus, str | None]:
    match found.exists:
        case None:
            return QueueStatus.UNKNOWN, None
        case False:
            return (QueueStatus.MISSING if known and known.is_required else QueueStatus.ABSENT), None
        case True:
            if known is not None and known.is_leaked:
                return QueueStatus.LEAKED, "it could not be deleted when its flow stopped"
            difference = _difference(known, found.arguments)
            return (QueueStatus.DIFFERS if difference else QueueStatus.OK), difference


def _difference(known: KnownQueue | None, current: Arguments | None) -> str | None:
    if known is None or known.arguments is None or current is None:
        return None
    ignored = {TTL_ARGUMENT} if known.has_any_ttl else set()
    wanted, current = _comparable(known.arguments, ignored), _comparable(current, ignored)
    differing = sorted(
        name for name in wanted.keys() | current.keys() if wanted.get(name) != current.get(name)
    )
    if not differing:
        return None
    each = (
        f"{name} is {_value(current.get(name))}, wanted is {_value(wanted.get(name))}" for name in differing
    )
    return f"{known.owner} declares it with other arguments: {'; '.join(each)}"


def _comparable(arguments: Arguments, ignored: set[str]) -> dict[str, object]:
    # RabbitMQ 4 adds the default type to the arguments of a queue that was declared without one.
    return {
        name: value
        for name, value in arguments.items()
        if name not in ignored and (name, value) != (TYPE_ARGUMENT, "classic")
    }


def _value(value: object) -> str:
    return "not set" if value is None else repr(value)


def _place(row: QueueRow) -> tuple[int, list[tuple[int, str]], list[tuple[int, str]]]:
    return list(OwnerKind).index(row.owner_kind), _natural(row.owner or ""), _natural(row.name)


def _natural(text: str) -> list[tuple[int, str]]:
    """worker.9 before worker.10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", text)]
