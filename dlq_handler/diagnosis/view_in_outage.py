"""A view of which something is unknown by now: the database is unreachable, or what was seen is too old. Pure."""

from dataclasses import fields, replace
from datetime import datetime
from typing import Any

from dlq_handler.diagnosis.view import DATABASE_AWAY, OFF, DatabaseSeen, Unknown, View


def without_database(view: View, *, trouble: str, since: datetime | None) -> View:
    """The same, with the database unreachable: everything that was read from it is unknown now."""
    return replace(
        view,
        database=DatabaseSeen(trouble=trouble, since=since),
        tables=DATABASE_AWAY,
        rights=DATABASE_AWAY,
        canaries=OFF if view.canaries == OFF else DATABASE_AWAY,
        brake=DATABASE_AWAY,
        leader=OFF if view.leader == OFF else DATABASE_AWAY,
        outbox=DATABASE_AWAY,
        workers=DATABASE_AWAY,
        requested=DATABASE_AWAY,
        at_request_limit=DATABASE_AWAY,
        letters=DATABASE_AWAY,
        attunes_ends=DATABASE_AWAY,
        service_looks=DATABASE_AWAY,
    )


def unseen(view: View, explanation: str) -> View:
    """The same view as if there had been no look: the last one is too old to say anything about now."""
    forgotten: dict[str, Any] = {
        field.name: Unknown(explanation) for field in fields(view) if isinstance(field.default, Unknown)
    }
    return replace(view, **forgotten)
