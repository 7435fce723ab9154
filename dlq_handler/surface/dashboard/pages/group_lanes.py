"""The lanes by which a single group gets its title: was its worker gone while its letters came?"""

from collections.abc import Sequence
from datetime import timedelta

from dlq_handler.domain.history import Lane
from dlq_handler.domain.letter_group import Group
from dlq_handler.store import history
from dlq_handler.store.engine import Database

# What is older is swept, or soon will be.
_LONGEST = timedelta(days=7)


async def lanes_of(database: Database, group: Group) -> Sequence[Lane]:
    if group.worker_id is None:
        return ()
    since = max(group.first_at, group.last_at - _LONGEST)
    return await history.lanes(database, since=since, until=group.last_at + timedelta(seconds=1))
