"""What the API takes and gives, as far as more than one route needs it."""

import re
from datetime import datetime
from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

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


class ErrorShape(Shape):
    """Why there is no other answer."""

    status: int
    title: str
    detail: str
    request_id: str | None = Field(description="Find the log line by it.")
    version: str | None = Field(default=None, description="With 409: the present version of the state.")


class Failure(Shape):
    error: ErrorShape


def failures(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For the description of a route: what else it may answer."""
    return {status: {"model": Failure} for status in statuses}


# What any route may answer: the guard, a wrong parameter, an unavailable server.
EVERYWHERE = failures(401, 413, 415, 421, 422, 503)
