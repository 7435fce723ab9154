"""Groups, chart and audit: what happened in a window of time, or over the whole life of a group."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query

from dlq_handler.api.shapes import EVERYWHERE, GroupId, QueryId, QueryMoment, QueryText, Shape, failures
from dlq_handler.dead_letters import groups_sql
from dlq_handler.dead_letters.group import Group, GroupCount, MinuteCount
from dlq_handler.dead_letters.listing import group_version, no_record_sentence
from dlq_handler.dead_letters.reprocess_sql import read_group_state
from dlq_handler.history import events_sql, history_sql
from dlq_handler.history.event import HistoryEvent
from dlq_handler.history.history import Span, Timeline
from dlq_handler.operations import audit_sql as operations
from dlq_handler.operations.operation import Operation
from dlq_handler.web.errors import Refused
from dlq_handler.web.world import UiWorld

MOST_OPERATIONS = 200


MOST_GROUPS = 200
USUAL_WINDOW = timedelta(hours=1)


class GroupListShape(Shape):
    since: datetime
    until: datetime
    total: int
    """Groups with letters in the window, also those beyond `limit`."""
    groups: Sequence[GroupCount]
    """Counts of the window; those inside `group` are of its whole life."""


class WholeGroup(Shape):
    group: Group
    reprocessable: int
    """Number of its dead letters on record that one operation would queue for reprocessing."""
    is_capped: bool
    """True: there are more than one operation can queue. Another operation queues more of them."""
    version: str
    """To be sent back with POST /letters/reprocess."""


class ChartShape(Shape):
    since: datetime
    until: datetime
    letters: list[MinuteCount]
    """By minute of arrival and reason; a minute without an entry had none, unless it is in `gaps`."""
    timelines: list[Timeline]
    """One for each worker."""
    markers: list[HistoryEvent]
    gaps: list[Span]
    """When no replica observed: the counts of this time are unknown, not zero."""


class Audit(Shape):
    operations: list[Operation]
    """Newest first."""
    older: int | None
    """`before` of the next page; null: this is the last."""


def history_routes(world: UiWorld) -> APIRouter:
    router = APIRouter(tags=["history"], responses=EVERYWHERE)

    @router.get("/chart")
    async def chart(since: QueryMoment = None, until: QueryMoment = None) -> ChartShape:
        """By default of the last hour; at most as long as history is kept (dlq_handler.retention.history_days)."""
        start, end = window(world, since, until)
        database = world.database
        return ChartShape(
            since=start,
            until=end,
            letters=await groups_sql.letters_per_minute(database, since=start, until=end),
            timelines=await history_sql.timelines(database, since=start, until=end),
            markers=await events_sql.markers(database, since=start, until=end),
            gaps=await history_sql.gaps(database, since=start, until=end),
        )

    @router.get("/audit")
    async def audit(
        before: QueryId = None,
        action: QueryText = None,
        username: QueryText = None,
        since: QueryMoment = None,
        limit: Annotated[int, Query(ge=1, le=MOST_OPERATIONS)] = 50,
    ) -> Audit:
        # One more than is shown, to know whether there are more.
        found = await operations.list_operations(
            world.database, before_id=before, limit=limit + 1, action=action, username=username, since=since
        )
        shown = found[:limit]
        return Audit(operations=shown, older=shown[-1].id if len(found) > limit else None)

    return router


def group_routes(world: UiWorld) -> APIRouter:
    router = APIRouter(tags=["groups"], responses=EVERYWHERE)

    @router.get("/groups")
    async def list_groups(
        since: QueryMoment = None,
        until: QueryMoment = None,
        limit: Annotated[int, Query(ge=1, le=MOST_GROUPS)] = 50,
    ) -> GroupListShape:
        """Those with the most dead letters first; by default of the last hour."""
        start, end = window(world, since, until)
        found = await groups_sql.groups(world.database, since=start, until=end, limit=limit)
        total = await groups_sql.count_groups(world.database, since=start, until=end)
        return GroupListShape(since=start, until=end, total=total, groups=found)

    @router.get("/groups/{group_id}", responses=failures(404))
    async def show_group(group_id: GroupId) -> WholeGroup:
        group = await groups_sql.group(world.database, group_id)
        if group is None:
            raise Refused(404, no_record_sentence(world.retention.longest_seconds))
        async with world.database.transaction() as tx:
            kept = await read_group_state(tx, group_id)
        return WholeGroup(
            group=group,
            reprocessable=kept.letters.count,
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
