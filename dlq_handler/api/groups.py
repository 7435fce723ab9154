"""Groups: letters that came for the same cause, counted over a window or over their whole life."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query

from dlq_handler.api.shapes import EVERYWHERE, GroupId, QueryMoment, Shape, failures
from dlq_handler.dead_letters import groups_sql
from dlq_handler.dead_letters.group import Group, GroupCount
from dlq_handler.dead_letters.no_record import no_record_sentence
from dlq_handler.dead_letters.reprocess_sql import read_group_state
from dlq_handler.dead_letters.state_version import group_version
from dlq_handler.web.errors import Refused
from dlq_handler.web.world import UiWorld

MOST_GROUPS = 200
USUAL_WINDOW = timedelta(hours=1)


class GroupList(Shape):
    since: datetime
    until: datetime
    total: int
    """Groups with letters in the window, also those beyond `limit`."""
    groups: Sequence[GroupCount]
    """Counts of the window; those inside `group` are of its whole life."""


class WholeGroup(Shape):
    group: Group
    is_reprocessable: int
    """So many of its letters that are still on record, as far as one act reaches."""
    is_capped: bool
    """There are more of them; the next act comes to those."""
    version: str
    """To be sent back with POST /letters/reprocess."""


def group_routes(world: UiWorld) -> APIRouter:
    router = APIRouter(tags=["groups"], responses=EVERYWHERE)

    @router.get("/groups")
    async def list_groups(
        since: QueryMoment = None,
        until: QueryMoment = None,
        limit: Annotated[int, Query(ge=1, le=MOST_GROUPS)] = 50,
    ) -> GroupList:
        """Those with the most dead letters first; by default of the last hour."""
        start, end = window(world, since, until)
        found = await groups_sql.groups(world.database, since=start, until=end, limit=limit)
        total = await groups_sql.count_groups(world.database, since=start, until=end)
        return GroupList(since=start, until=end, total=total, groups=found)

    @router.get("/groups/{group_id}", responses=failures(404))
    async def show_group(group_id: GroupId) -> WholeGroup:
        group = await groups_sql.group(world.database, group_id)
        if group is None:
            raise Refused(404, no_record_sentence(world.retention.longest_seconds))
        async with world.database.transaction() as tx:
            kept = await read_group_state(tx, group_id)
        return WholeGroup(
            group=group,
            is_reprocessable=kept.letters.count,
            is_capped=kept.letters.is_capped,
            version=group_version(kept.digest),
        )

    return router


def window(world: UiWorld, since: datetime | None, until: datetime | None) -> tuple[datetime, datetime]:
    """What was asked for, no longer than what is kept, and not beyond now."""
    end = min(until or world.now, world.now)
    start = since or end - USUAL_WINDOW
    if start >= end:
        raise Refused(422, "since: the window must begin before it ends, and before now.")
    return max(start, end - timedelta(seconds=world.retention.history_seconds)), end
