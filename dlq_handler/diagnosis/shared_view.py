"""A view as text and back, for the table through which the leader shares it.

In parts: a fleet of thousands is encoded and decoded piece by piece, so that no piece holds the event loop for long.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from itertools import chain
from typing import Any, TypeVar

from pydantic import TypeAdapter

from dlq_handler.diagnosis.checks import Check
from dlq_handler.diagnosis.view import ObservedWorker, TopologyFact, Unknown, View
from dlq_handler.topology.canary import WorkerCanary
from dlq_handler.topology.check import CheckedQueue

_ITEMS_IN_PART = 200

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A view, and when each of its problems began."""

    view: View
    beginnings: Mapping[Check, datetime]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Items:
    """A piece of the lists that grow with the fleet."""

    workers: Sequence[ObservedWorker] = ()
    queues: tuple[CheckedQueue, ...] = ()
    canaries: Sequence[WorkerCanary] = ()


# Built when they are needed: it takes as long as a small query.
@cache
def _whole() -> TypeAdapter[Observation]:
    return TypeAdapter(Observation)


@cache
def _items() -> TypeAdapter[_Items]:
    return TypeAdapter(_Items)


async def encode(observation: Observation) -> list[str]:
    """Gives other tasks a turn after each part."""
    parts = []
    for part in _encoded(observation):
        parts.append(part)
        await asyncio.sleep(0)
    return parts


async def decode(parts: Sequence[str]) -> Observation | None:
    """None: a replica of another version wrote it."""
    items: list[_Items] = []
    try:
        first = _whole().validate_json(parts[0])
        for part in parts[1:]:
            await asyncio.sleep(0)
            items.append(_items().validate_json(part))
    except ValueError:
        return None
    return replace(
        first,
        view=_with_items(
            first.view,
            _Items(
                workers=tuple(chain.from_iterable(one.workers for one in items)),
                queues=tuple(chain.from_iterable(one.queues for one in items)),
                canaries=tuple(chain.from_iterable(one.canaries for one in items)),
            ),
        ),
    )


def _encoded(observation: Observation) -> Iterator[str]:
    """The first part without those lists, then the lists."""
    view = observation.view
    yield _text(_whole(), replace(observation, view=_with_items(view, _Items())))
    if not isinstance(view.workers, Unknown):
        yield from (_text(_items(), _Items(workers=piece)) for piece in _pieces(view.workers))
    if isinstance(view.topology, TopologyFact):
        yield from (_text(_items(), _Items(queues=piece)) for piece in _pieces(view.topology.checked.queues))
    if not isinstance(view.canaries, (Unknown, str)):
        yield from (_text(_items(), _Items(canaries=piece)) for piece in _pieces(view.canaries))


def _with_items(view: View, items: _Items) -> View:
    """A list that is unknown, or off, stays so."""
    changed: dict[str, Any] = {}
    if not isinstance(view.workers, Unknown):
        changed["workers"] = items.workers
    if isinstance(view.topology, TopologyFact):
        checked = replace(view.topology.checked, queues=items.queues)
        changed["topology"] = replace(view.topology, checked=checked)
    if not isinstance(view.canaries, (Unknown, str)):
        changed["canaries"] = items.canaries
    return replace(view, **changed)


def _text(adapter: TypeAdapter[Any], value: object) -> str:
    return adapter.dump_json(value).decode()


def _pieces(items: Sequence[Item]) -> Iterator[tuple[Item, ...]]:
    for start in range(0, len(items), _ITEMS_IN_PART):
        yield tuple(items[start : start + _ITEMS_IN_PART])
