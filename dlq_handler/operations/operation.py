"""An operation: what a person did to the sidecar, with the reason given for it. The audit is made of these."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Client(StrEnum):
    CLI = "cli"
    API = "api"
    BROWSER = "browser"


BRAKE_RELEASE = "brake.release"
LETTERS_REPROCESS = "letters.reprocess"
LETTER_BODY_READ = "letter.body_read"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    id: int
    at: datetime
    username: str
    """The name of a token, or user@host of a command."""
    client: str
    action: str
    target: str | None
    comment: str | None
    result: str
