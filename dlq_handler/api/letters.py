"""Letters: found, counted, shown one by one. A raw body is for operators, and each reading of it is on record."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from dlq_handler.api.shapes import (
    EVERYWHERE,
    GROUP_PATTERN,
    Id,
    Letter,
    QueryId,
    QueryMoment,
    QueryText,
    Shape,
    WholeLetter,
    failures,
)
from dlq_handler.dead_letters import records_sql as letters
from dlq_handler.dead_letters import search_sql
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.filter import CappedCount, LetterFilter
from dlq_handler.dead_letters.group import Category
from dlq_handler.dead_letters.no_record import no_record_sentence
from dlq_handler.web.errors import Refused
from dlq_handler.web.users import needs_operate, user_of
from dlq_handler.web.world import UiWorld

MOST_LETTERS = 200


class LetterList(Shape):
    letters: list[Letter]
    older: int | None
    """`before` of the page with older ones; null: there are none."""
    newer: int | None
    """`after` of the page with newer ones; null: this is the first."""


def wanted(  # noqa: PLR0917  FastAPI gives them by name
    group: Annotated[str | None, Query(pattern=GROUP_PATTERN)] = None,
    category: Category | None = None,
    reason: QueryText = None,
    outcome: Outcome | None = None,
    worker_id: QueryId = None,
    action: QueryText = None,
    since: QueryMoment = None,
    until: QueryMoment = None,
    search: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=200,
            description="An id: of an execution, a letter, a message, a correlation.",
        ),
    ] = None,
) -> LetterFilter:
    return LetterFilter(
        group=group,
        category=category,
        reason=reason,
        outcome=outcome,
        worker_id=worker_id,
        action=action,
        since=since,
        until=until,
        search=search,
    )


Wanted = Annotated[LetterFilter, Depends(wanted)]


def letter_routes(world: UiWorld) -> APIRouter:
    router = APIRouter(tags=["letters"], responses=EVERYWHERE)

    @router.get("/letters")
    async def list_letters(
        which: Wanted,
        before: QueryId = None,
        after: QueryId = None,
        limit: Annotated[int, Query(ge=1, le=MOST_LETTERS)] = 50,
    ) -> LetterList:
        """Newest first."""
        async with world.searches.turn():
            page = await search_sql.search(
                world.database, which, before_id=before, after_id=after, limit=limit
            )
        return LetterList(
            letters=[Letter.of(one) for one in page.records], older=page.older, newer=page.newer
        )

    @router.get("/letters/count")
    async def count_letters(which: Wanted) -> CappedCount:
        """How many there are, up to 1000."""
        async with world.searches.turn():
            return await search_sql.count(world.database, which)

    @router.get("/letters/{letter_id}", responses=failures(404))
    async def show_letter(request: Request, letter_id: Id) -> WholeLetter:
        record = await letters.show(world.database, letter_id)
        if record is None:
            raise no_letter(world)
        older, newer = await search_sql.neighbours(world.database, letter_id)
        may_operate = user_of(request).may_operate
        return WholeLetter.whole(record, may_operate=may_operate, older=older, newer=newer)

    # No GET: it is recorded, and a page of another site can make a browser send any GET.
    @router.post(
        "/letters/{letter_id}/body",
        response_class=Response,
        responses={
            200: {"content": {"application/octet-stream": {}}, "description": "The body as it came."},
            **failures(403, 404),
        },
    )
    async def raw_body(request: Request, letter_id: Id) -> Response:
        """As it came, nothing masked: for the role operate, and recorded in the audit."""
        needs_operate(request)
        body = await world.operating.read_body(user_of(request).actor, letter_id)
        if body is None:
            raise no_letter(world)
        # As a file, whatever it says it is: no browser is to run what a sender wrote.
        name = f'attachment; filename="letter-{letter_id}.bin"'
        return Response(body, media_type="application/octet-stream", headers={"Content-Disposition": name})

    return router


def no_letter(world: UiWorld) -> Refused:
    return Refused(404, no_record_sentence(world.retention.resolved_seconds))
