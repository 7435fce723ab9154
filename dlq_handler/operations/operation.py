"""An operation: what a person did with dlq-handler, and the comment given for it. The audit lists these."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Client(StrEnum):
    CLI = "cli"
    API = "api"
    BROWSER = "browser"


class Action(StrEnum):
    BRAKE_RELEASE = "brake.release"
    LETTERS_REPROCESS = "letters.reprocess"
    LETTER_BODY_READ = "letter.body_read"


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who does it: the name of a token, or user@host of a command."""

    username: str
    client: Client


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    id: int
    at: datetime
    username: str
    client: str
    action: str
    target: str | None
    comment: str | None
    result: str
