"""Whoever asks: a name, and what it may do. Put into `request.state.visitor` by the guard, before any route runs."""

from dataclasses import dataclass
from enum import StrEnum

from starlette.requests import Request

from dlq_handler.domain.operation import Via
from dlq_handler.services.operating import Actor

ANONYMOUS = "anonymous@loopback"


class Role(StrEnum):
    READ = "read"
    OPERATE = "operate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    name: str
    role: Role
    via: Via

    @property
    def may_operate(self) -> bool:
        return self.role is Role.OPERATE

    @property
    def actor(self) -> Actor:
        return Actor(who=self.name, via=self.via)


def visitor_of(request: Request) -> Visitor:
    visitor = request.state.visitor
    assert isinstance(visitor, Visitor)  # noqa: S101  the guard is in front of every route
    return visitor
