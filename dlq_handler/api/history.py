"""What was: the chart's figures, and the audit."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query

from dlq_handler.api.groups import window
from dlq_handler.api.shapes import EVERYWHERE, QueryId, QueryMoment, QueryText, Shape
from dlq_handler.dead_letters import groups_sql
from dlq_handler.dead_letters.group import MinuteCount
from dlq_handler.history import events_sql, history_sql
from dlq_handler.history.event import HistoryEvent
from dlq_handler.history.history import Span, Timeline
from dlq_handler.operations import audit_sql as operations
from dlq_handler.operations.operation import Operation
from dlq_handler.web.world import UiWorld

MOST_OPERATIONS = 200


class Chart(Shape):
    since: datetime
    until: datetime
    letters: list[MinuteCount]
    """By minute of arrival and reason; a minute without an entry had none, unless it is gaps."""
    timelines: list[Timeline]
    """One for each worker."""
    markers: list[HistoryEvent]
    gaps: list[Span]
    """When no sidecar was looking: nothing is known, which is not the same as nothing."""


class Audit(Shape):
    operations: list[Operation]
    """Newest first."""
    older: int | None
    """`before` of the next page; null: this is the last."""


def history_routes(world: UiWorld) -> APIRouter:
    router = APIRouter(tags=["history"], responses=EVERYWHERE)

    @router.get("/chart")
    async def chart(since: QueryMoment = None, until: QueryMoment = None) -> Chart:
        """By default of the last hour; at most as long as history is kept (dlq_handler.retention.history_days)."""
        start, end = window(world, since, until)
        database = world.database
        return Chart(
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
