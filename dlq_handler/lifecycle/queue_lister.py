"""List the queues of a vhost with their owners. Reads only.

AMQP cannot list queues. With the management API every queue of the vhost is in the list. Without it only queues are
that dlq-handler knows by name, and each question about a missing queue, and each about arguments, leaves error lines in
the broker's log: at most `MAX_REFUSALS` are asked, the other answers are unknown.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from dlq_handler.broker.admin import queue_probe
from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.broker.admin.queue_probe import QueueCounts, QueueDeclaration
from dlq_handler.database.engine import Database
from dlq_handler.errors import Unavailable
from dlq_handler.host.worker import by_heartbeat
from dlq_handler.host.workers_sql import read_workers
from dlq_handler.lifecycle.flow import Flow
from dlq_handler.lifecycle.flows_sql import list_flows
from dlq_handler.lifecycle.known_queues import QueueNames, known_queues, queues_of_flows, recognize
from dlq_handler.lifecycle.queue_list import FoundQueue, KnownQueue, QueueRow, list_rows
from dlq_handler.workers.refusal_budget import MAX_PER_MINUTE

MAX_REFUSALS = MAX_PER_MINUTE
_REFUSALS_PER_PROBE = 4
"""At most so many declares of a classic queue are refused until its two arguments are known."""

NOT_LISTED = (
    "only queues that dlq-handler knows by name are in the list, because AMQP cannot list queues; "
    "dlq_handler.broker.management_url says where the management API is"
)
_OVER_BUDGET = (
    "it may be missing, and dlq-handler asks about at most {limit} such queues, because each leaves error lines in the "
    "broker's log; make the management API available (dlq_handler.broker.management_url)"
)
_ARGUMENTS_OVER_BUDGET = (
    "its arguments are unknown: each question about them leaves error lines in the broker's log, and dlq-handler asks "
    "few; make the management API available (dlq_handler.broker.management_url)"
)
_REFUSED = "the broker refuses the question; `dlq-handler grants` prints the rights that the user needs"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueList:
    rows: tuple[QueueRow, ...]
    limits: tuple[str, ...] = ()
    """What could not be read, and why; empty: nothing."""


async def list_all_queues(
    database: Database, admin: AdminConnection, api: ManagementApi, names: QueueNames
) -> QueueList:
    """Raises `Unavailable` when the broker does not answer. Without the database owners are known by names alone."""
    workers: Sequence[int] = ()
    flows: Sequence[Flow] = ()
    limits: list[str] = []
    try:
        async with database.transaction() as tx:
            workers = by_heartbeat((await read_workers(tx)).values())
        flows = await list_flows(database)
    except Unavailable as error:
        limits.append(
            f"{error}; the queues of flows are unknown, and those of workers unless the broker lists them"
        )
    # Flows first: their number is small, and the budget of questions may not suffice for a whole fleet.
    known = (*queues_of_flows(flows), *known_queues(names, workers))
    found = await list_queues(admin, api, known, recognize=partial(recognize, names=names))
    return replace(found, limits=(*limits, *found.limits))


async def list_queues(
    admin: AdminConnection,
    api: ManagementApi,
    known: Collection[KnownQueue],
    *,
    recognize: Callable[[str], KnownQueue | None],
) -> QueueList:
    """`known` in the order in which they are asked about. Raises `Unavailable` when the broker does not answer."""
    await admin.open()
    try:
        listed = await api.queue_arguments()
    except Unavailable as error:
        found = await _probe(admin, [one.name for one in known])
        return QueueList(rows=list_rows(known, found), limits=(f"{error}; {NOT_LISTED}",))
    # The statistics of the API are seconds old.
    counted = await queue_probe.count_all(admin, listed)
    found = {
        name: replace(_counted(counted, name), arguments=arguments) for name, arguments in listed.items()
    }
    found |= {one.name: FoundQueue(exists=False) for one in known if one.name not in listed}
    return QueueList(rows=list_rows(known, found, recognize))


def _counted(counted: Mapping[str, QueueCounts | None], name: str) -> FoundQueue:
    if name not in counted:
        return FoundQueue(exists=True, explanation=_REFUSED)
    counts = counted[name]
    if counts is None:
        return FoundQueue(exists=False)
    return FoundQueue(exists=True, ready=counts.ready, consumers=counts.consumers)


async def _probe(admin: AdminConnection, names: Sequence[str]) -> dict[str, FoundQueue]:
    names = list(dict.fromkeys(names))
    counted, not_asked = await queue_probe.count_until_refused(admin, names, refusals=MAX_REFUSALS)
    left = MAX_REFUSALS - sum(counted.get(name) is None for name in names if name not in not_asked)
    found = {name: _of_counts(counted, name, not_asked) for name in names}
    present = [name for name in names if found[name].exists]
    for name, probed in zip(present, await _probe_arguments(admin, present, left), strict=True):
        found[name] = replace(
            found[name],
            arguments=probed.arguments if isinstance(probed, QueueDeclaration) else None,
            explanation=None if isinstance(probed, QueueDeclaration) else probed,
        )
    return found


def _of_counts(
    counted: Mapping[str, QueueCounts | None], name: str, not_asked: Collection[str]
) -> FoundQueue:
    if name in counted:
        return _counted(counted, name)
    explanation = _OVER_BUDGET.format(limit=MAX_REFUSALS) if name in not_asked else _REFUSED
    return FoundQueue(exists=None, explanation=explanation)


async def _probe_arguments(
    admin: AdminConnection, names: Iterable[str], budget: int
) -> list[QueueDeclaration | str]:
    """For each queue its arguments, or the reason why they are unknown."""
    answers: list[QueueDeclaration | str] = []
    for name in names:
        if budget < _REFUSALS_PER_PROBE:
            answers.append(_ARGUMENTS_OVER_BUDGET)
            continue
        budget -= _REFUSALS_PER_PROBE
        answers.append(await queue_probe.probe_queue(admin, name) or _REFUSED)
    return answers
