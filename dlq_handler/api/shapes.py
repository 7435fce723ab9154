"""What the API takes and gives, as far as more than one route needs it."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Self

from fastapi import Path, Query
from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from dlq_handler.dead_letters.decision import REPROCESSABLE, Outcome
from dlq_handler.dead_letters.record import LetterRecord
from dlq_handler.dead_letters.state_version import letter_version
from dlq_handler.masking import masked_body

LARGEST_ID = 2**63 - 1
GROUP_PATTERN = "^[0-9a-f]{10}$"


def _written_out(moment: object) -> object:
    # A bare number would be taken for seconds, or for milliseconds, since 1970.
    if isinstance(moment, str) and not re.match(r"\d{4}-\d\d-\d\d", moment):
        raise ValueError("a moment such as 2030-01-31T03:00:00Z")
    return moment


def _in_range(moment: datetime) -> datetime:
    # In the first and the last year of the calendar, the same moment in UTC may have no year at all.
    if not 1 < moment.year < 9999:
        raise ValueError("a year from 2 to 9998")
    return moment


Id = Annotated[int, Path(ge=1, le=LARGEST_ID)]
GroupId = Annotated[str, Path(pattern=GROUP_PATTERN)]
QueryId = Annotated[int | None, Query(ge=1, le=LARGEST_ID)]
QueryText = Annotated[str | None, Query(min_length=1, max_length=200)]
Moment = Annotated[AwareDatetime, BeforeValidator(_written_out), AfterValidator(_in_range)]
QueryMoment = Annotated[Moment | None, Query(description="With its offset: 2030-01-31T03:00:00Z")]


class Shape(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class Fault(Shape):
    """Why there is no other answer."""

    status: int
    title: str
    detail: str
    request_id: str | None = Field(description="What the log's line is found by.")
    version: str | None = Field(
        default=None, description="With 409: the state's version now, after another look at it."
    )


class Failure(Shape):
    error: Fault


def failures(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For the description of a route: what else it may answer."""
    return {status: {"model": Failure} for status in statuses}


# What any route may answer: the guard, a wrong parameter, a server that is away.
EVERYWHERE = failures(401, 413, 415, 421, 422, 503)


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
