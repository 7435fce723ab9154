"""The lanes by which a single group gets its title: was its worker gone around its newest letter?"""

from collections.abc import Sequence

from dlq_handler.domain.group_title import AROUND
from dlq_handler.domain.history import Lane
from dlq_handler.domain.letter_group import Group
from dlq_handler.store import history
from dlq_handler.store.engine import Database


async def lanes_of(database: Database, group: Group) -> Sequence[Lane]:
    if group.worker_id is None:
        return ()
    return await history.lanes(database, since=group.last_at - AROUND, until=group.last_at + AROUND)
