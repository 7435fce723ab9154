"""An operation: what a person did to the sidecar, with the reason given for it. The audit is made of these."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Via(StrEnum):
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
    who: str
    """The name of a token, or user@host of a command."""
    via: str
    what: str
    target: str | None
    reason: str | None
    result: str
