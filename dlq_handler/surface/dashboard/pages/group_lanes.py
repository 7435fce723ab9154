"""The lanes by which a single group gets its title: was its worker gone around its newest letter?"""

from collections.abc import Sequence

from dlq_handler.domain.group_title import waited
from dlq_handler.domain.history import Lane
from dlq_handler.domain.letter_group import Group
from dlq_handler.store import history
from dlq_handler.store.engine import Database


async def lanes_of(database: Database, group: Group, *, ttl_seconds: float) -> Sequence[Lane]:
    if group.worker_id is None:
        return ()
    since, until = waited(group.last_at, ttl_seconds=ttl_seconds)
    return await history.lanes(database, since=since, until=until)
