"""Which of the queues that the host's services declare at every start do not exist."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dlq_handler.host.owners import SYSTEM_QUEUES

if TYPE_CHECKING:
    # `status` reads `SystemQueues` from the database: the libraries of the broker would take as long as its answer.
    from dlq_handler.broker.admin.queue_counter import QueueCounter

OWNERS: Mapping[str, str] = {queue.name: queue.service.value for queue in SYSTEM_QUEUES}
"""The service that declares a queue, by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemQueues:
    missing: tuple[str, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)
    """The reason for each."""

    @property
    def missing_count(self) -> int | None:
        """None: unknown."""
        return None if self.unknown and not self.missing else len(self.missing)


class SystemQueueReader:
    """A queue of a service that not every host runs is missing only if it existed before."""

    def __init__(self, queues: "QueueCounter") -> None:
        self._queues = queues
        self._existed: set[str] = set()

    async def read(self) -> SystemQueues:
        counted = await self._queues.count_all(list(OWNERS))
        self._existed |= {name for name, counts in counted.items() if counts is not None}
        expected = [
            queue.name for queue in SYSTEM_QUEUES if not queue.is_optional or queue.name in self._existed
        ]
        return SystemQueues(
            missing=tuple(name for name in expected if name in counted and counted[name] is None),
            unknown={
                name: self._queues.unknown_explanation(name) for name in expected if name not in counted
            },
        )
