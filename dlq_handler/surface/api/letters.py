"""Letters: found, counted, shown one by one. A raw body is for operators, and each reading of it is on record."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from dlq_handler.domain.letter_filter import CappedCount, LetterFilter
from dlq_handler.domain.letter_group import Cause
from dlq_handler.domain.verdict import Outcome
from dlq_handler.store import letter_search, letters
from dlq_handler.store.swept import letter_swept_at
from dlq_handler.surface.api.shapes import (
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
from dlq_handler.surface.swept import swept_sentence
from dlq_handler.surface.web.errors import Refused
from dlq_handler.surface.web.roles import needs_operate
from dlq_handler.surface.web.visitor import visitor_of
from dlq_handler.surface.web.world import UiWorld

MOST_LETTERS = 200


class LetterList(Shape):
    letters: list[Letter]
    older: int | None
    """`before` of the page with older ones; null: there are none."""
    newer: int | None
    """`after` of the page with newer ones; null: this is the first."""


class Count(Shape):
    count: int
    is_capped: bool
    """The count stopped at the limit: there may be more."""


def wanted(  # noqa: PLR0917  FastAPI gives them by name
    group: Annotated[str | None, Query(pattern=GROUP_PATTERN)] = None,
    cause: Cause | None = None,
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
        cause=cause,
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
            page = await letter_search.search(
                world.database, which, before_id=before, after_id=after, limit=limit
            )
        return LetterList(
            letters=[Letter.of(one) for one in page.records], older=page.older, newer=page.newer
        )

    @router.get("/letters/count", response_model=Count)
    async def count_letters(which: Wanted) -> CappedCount:
        """How many there are, up to 1000."""
        async with world.searches.turn():
            return await letter_search.count(world.database, which)

    @router.get("/letters/{letter_id}", responses=failures(404, 410))
    async def show_letter(letter_id: Id) -> WholeLetter:
        record = await letters.show(world.database, letter_id)
        if record is None:
            raise await no_letter(world, letter_id)
        older, newer = await letter_search.neighbours(world.database, letter_id)
        return WholeLetter.whole(record, older=older, newer=newer)

    # No GET: it is recorded, and a page of another site can make a browser send any GET.
    @router.post(
        "/letters/{letter_id}/body",
        response_class=Response,
        responses={
            200: {"content": {"application/octet-stream": {}}, "description": "The body as it came."},
            **failures(403, 404, 410),
        },
    )
    async def raw_body(request: Request, letter_id: Id) -> Response:
        """As it came, nothing masked: for the role operate, and recorded in the audit."""
        needs_operate(request)
        body = await world.operating.read_body(visitor_of(request).actor, letter_id)
        if body is None:
            raise await no_letter(world, letter_id)
        # As a file, whatever it says it is: no browser is to run what a sender wrote.
        name = f'attachment; filename="letter-{letter_id}.bin"'
        return Response(body, media_type="application/octet-stream", headers={"Content-Disposition": name})

    return router


async def no_letter(world: UiWorld, letter_id: int) -> Refused:
    swept_at = await letter_swept_at(world.database, letter_id)
    if swept_at is None:
        return Refused(404, f"There is no letter {letter_id}, and never was one.")
    return Refused(410, swept_sentence(letter_id, swept_at, world.retention))
