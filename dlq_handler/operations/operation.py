"""An operation: what a person did with dlq-handler, and the comment given for it. The audit lists these."""

from collections.abc import Sequence
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
    FLOW_START = "flow.start"
    FLOW_STOP = "flow.stop"
    QUEUES_RETIRE = "queues.retire"


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
    letter_ids: Sequence[int]
    group_id: str | None
    comment: str | None
    result: str
    subject: str | None = None
    """What it is about, where that is no dead letter."""

    @property
    def target(self) -> str | None:
        return self.subject or target_of(self.letter_ids, self.group_id)


def target_of(letter_ids: Sequence[int], group_id: str | None) -> str | None:
    """In words. None: the operation is about no dead letter."""
    if group_id is not None:
        return f"group {group_id}"
    if not letter_ids:
        return None
    shown = ", ".join(str(one) for one in letter_ids[:5])
    more = f" and {len(letter_ids) - 5} more" if len(letter_ids) > 5 else ""
    return f"letter {shown}" if len(letter_ids) == 1 else f"letters {shown}{more}"
