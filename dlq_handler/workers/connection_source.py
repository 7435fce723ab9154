"""Ask the management API which connections consume the workers' queues. Reads only.

Promises: one request for each queue, and one more for a connection that is new or was not found the last time; the
whole check is bounded. After a failure the API is left alone for a while.
"""

from collections.abc import Callable, Collection, Mapping

from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.broker.admin.snapshot import ConsumerFacts
from dlq_handler.clock import monotonic_seconds
from dlq_handler.errors import Unavailable
from dlq_handler.host.worker import WorkerQueueNames
from dlq_handler.workers.worker_process import ConnectionObservation, KnownConnection

# An API that hangs would hold up every scan of the monitor by its timeout.
PAUSE_SECONDS = 60.0

# Of one check, whatever the number of workers: the scan waits for it. The rest is for the ages of new connections.
CHECK_SECONDS = 5.0
CONSUMERS_SECONDS = 3.0

# A clock that was set back makes a connection appear younger than it is: then nothing follows from its age.
LEAST_AGE_SECONDS = -2.0

UNCLEAR = "the management API does not say which connection consumes its queue"
CANNOT_DETECT = "a restart cannot be detected without the management API"


class ConnectionSource:
    def __init__(
        self,
        api: ManagementApi,
        *,
        names: WorkerQueueNames,
        own_tag_prefix: str,
        now: Callable[[], float] = monotonic_seconds,
    ) -> None:
        """`api` is used by nothing else, because it pauses by itself after a refusal.

        `own_tag_prefix`: consumers of dlq-handler, which drains the queues of unavailable workers, are no workers.
        """
        self._api, self._names, self._own_tag_prefix, self._now = api, names, own_tag_prefix, now
        self._asked_again_at = float("-inf")
        self.api_error: str | None = None
        """Why the management API could not be asked; None when it could."""

    @property
    def trouble(self) -> str:
        """Why the last answer was not clear."""
        return UNCLEAR if self.api_error is None else f"{CANNOT_DETECT}: {self.api_error}"

    async def ask(
        self, known: Mapping[int, KnownConnection | None]
    ) -> dict[int, ConnectionObservation | None]:
        """`known`: the workers to ask about, the most urgent first, each with what earlier checks found.

        None: no clear answer. A worker that is left out was not asked about: the time was over.
        """
        if not known:
            return {}
        unknown: dict[int, ConnectionObservation | None] = dict.fromkeys(known)
        if self._now() < self._asked_again_at:
            return unknown
        end = self._now() + CHECK_SECONDS
        try:
            found = await self._connections(known)
            ages = await self._ages(known, found, within_seconds=max(0.0, end - self._now()))
        except Unavailable as error:
            self.api_error = str(error)
            self._asked_again_at = self._now() + PAUSE_SECONDS
            return unknown
        self.api_error = None
        return {one: _observation(known[one], connections, ages) for one, connections in found.items()}

    async def _connections(self, worker_ids: Collection[int]) -> dict[int, frozenset[str] | None]:
        queues = {self._names.queue(one): one for one in worker_ids}
        answers = await self._api.consumers_of(queues, within_seconds=CONSUMERS_SECONDS)
        return {queues[queue]: self._names_of(consumers) for queue, consumers in answers.items()}

    def _names_of(self, consumers: Collection[ConsumerFacts] | None) -> frozenset[str] | None:
        if consumers is None:
            return None
        names = frozenset(one.connection for one in consumers if not one.tag.startswith(self._own_tag_prefix))
        # The API may list a consumer before it knows its connection.
        return names if all(names) else None

    async def _ages(
        self,
        known: Mapping[int, KnownConnection | None],
        found: Mapping[int, frozenset[str] | None],
        *,
        within_seconds: float,
    ) -> Mapping[str, float]:
        new = [
            name
            for worker_id, connections in found.items()
            if connections is not None
            and len(connections) == 1
            and not _is_known(known[worker_id], connections)
            for name in connections
        ]
        return await self._api.connection_ages(new, within_seconds=within_seconds) if new else {}


def _observation(
    known: KnownConnection | None, connections: frozenset[str] | None, ages: Mapping[str, float]
) -> ConnectionObservation | None:
    if connections is None:
        return None
    if len(connections) != 1 or _is_known(known, connections):
        return ConnectionObservation(names=connections)
    age = ages.get(*connections)
    if age is None or age < LEAST_AGE_SECONDS:
        return None
    return ConnectionObservation(names=connections, age_seconds=max(0.0, age))


def _is_known(known: KnownConnection | None, connections: frozenset[str]) -> bool:
    """Of one that was not found in between, the age shows whether another connection has its name now."""
    return known is not None and known.missing_since is None and known.connection in connections
