"""Letters: found, counted, shown one by one. A raw body is for operators, and each reading of it is on record."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Self

from fastapi import APIRouter, Depends, Query, Request
from pydantic import Field
from starlette.responses import Response

from dlq_handler.api.shapes import (
    EVERYWHERE,
    GROUP_PATTERN,
    Id,
    QueryId,
    QueryMoment,
    QueryText,
    Shape,
    failures,
)
from dlq_handler.dead_letters import records_sql as letters
from dlq_handler.dead_letters import search_sql
from dlq_handler.dead_letters.decision import REPROCESSABLE, Outcome
from dlq_handler.dead_letters.group import Category
from dlq_handler.dead_letters.listing import (
    CappedCount,
    LetterFilter,
    LetterRecord,
    letter_version,
    no_record_sentence,
)
from dlq_handler.masking import masked_body
from dlq_handler.web.errors import Refused
from dlq_handler.web.users import needs_operate, user_of
from dlq_handler.web.world import UiWorld

MOST_LETTERS = 200


class Letter(Shape):
    """One letter on record, as a list shows it."""

    id: int
    group_id: str | None = Field(
        description="null: it belongs to no group (shadow mode, or older than the groups)."
    )
    message_id: str | None
    correlation_id: str | None
    message_type: str | None
    execution_id: int | None
    worker_id: int | None
    action_ref: str | None
    queue: str | None
    first_death_queue: str | None
    reason: str
    died_at: datetime | None = Field(description="By the broker's clock; all other times by the database's.")
    exchange: str
    routing_key: str
    outcome: Outcome
    explanation: str
    error: str | None
    attempts: int
    next_attempt_at: datetime | None
    repeats: int
    repeated_at: datetime | None = Field(description="Time of the last repeat; null: it arrived once.")
    received_at: datetime
    decided_at: datetime
    replica: str
    is_shadow: bool
    body_size: int

    @classmethod
    def of(cls, record: LetterRecord) -> Self:
        return cls.model_validate(record)


class Body(Shape):
    """The body, with secrets masked. A body that is not JSON is for the role `operate` only."""

    text: str | None = Field(description="null: not JSON, and for the role operate only; or not text.")
    size: int
    is_cut: bool
    is_json: bool


class WholeLetter(Letter):
    version: str = Field(description="To be sent back with POST /letters/reprocess.")
    is_reprocessable: bool
    evidence: Mapping[str, Any] = Field(description="What the decision rests on.")
    headers: Mapping[str, Any] = Field(description="As they came, secrets masked.")
    body: Body
    older: int | None = Field(description="The letter before it on record.")
    newer: int | None

    @classmethod
    def whole(
        cls, record: LetterRecord, *, may_operate: bool, older: int | None, newer: int | None
    ) -> "WholeLetter":
        return cls(
            **Letter.of(record).model_dump(),
            version=letter_version(record),
            is_reprocessable=record.outcome in REPROCESSABLE and not record.is_shadow,
            evidence=record.evidence,
            headers=record.headers or {},
            body=Body.model_validate(masked_body(record.body or b"", is_text_shown=may_operate)),
            older=older,
            newer=newer,
        )


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
