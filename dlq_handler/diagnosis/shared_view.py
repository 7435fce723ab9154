"""A view as text and back, for the table through which the leader shares it.

In parts: a fleet of thousands is encoded and decoded piece by piece, so that no piece holds the event loop for long.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from dlq_handler.diagnosis.diagnosis import Check
from dlq_handler.diagnosis.view import ObservedWorker, TopologyFact, Unknown, View
from dlq_handler.topology.check import CheckedQueue

_ITEMS_IN_PART = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A view, and when each of its problems began."""

    view: View
    beginnings: Mapping[Check, datetime]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Items:
    """A piece of the two lists that grow with the fleet."""

    workers: Sequence[ObservedWorker] = ()
    queues: Sequence[CheckedQueue] = ()


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
    workers: list[ObservedWorker] = []
    queues: list[CheckedQueue] = []
    try:
        first = _whole().validate_json(parts[0])
        for part in parts[1:]:
            await asyncio.sleep(0)
            items = _items().validate_json(part)
            workers.extend(items.workers)
            queues.extend(items.queues)
    except ValueError:
        return None
    view = first.view
    changed: dict[str, Any] = {}
    if not isinstance(view.workers, Unknown):
        changed["workers"] = tuple(workers)
    if isinstance(view.topology, TopologyFact):
        checked = replace(view.topology.checked, queues=tuple(queues))
        changed["topology"] = replace(view.topology, checked=checked)
    return replace(first, view=replace(view, **changed))


def _encoded(observation: Observation) -> Iterator[str]:
    """The first part without those lists, then the lists."""
    view = observation.view
    emptied: dict[str, Any] = {}
    if not isinstance(view.workers, Unknown):
        emptied["workers"] = ()
    if isinstance(view.topology, TopologyFact):
        emptied["topology"] = replace(view.topology, checked=replace(view.topology.checked, queues=()))
    yield _text(_whole(), replace(observation, view=replace(view, **emptied)))
    if not isinstance(view.workers, Unknown):
        for piece in _pieces(view.workers):
            yield _text(_items(), _Items(workers=piece))
    if isinstance(view.topology, TopologyFact):
        for queues in _pieces(view.topology.checked.queues):
            yield _text(_items(), _Items(queues=queues))


def _text(adapter: TypeAdapter[Any], value: object) -> str:
    return adapter.dump_json(value).decode()


def _pieces(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), _ITEMS_IN_PART):
        yield items[start : start + _ITEMS_IN_PART]
