"""One observation for a command: the view that the leader shares, or without a valid one a view of its own."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime

from dlq_handler.database.engine import Database
from dlq_handler.diagnosis import diagnoses_sql
from dlq_handler.diagnosis.answer import answer_of
from dlq_handler.diagnosis.checks import Check
from dlq_handler.diagnosis.diagnose import diagnose
from dlq_handler.diagnosis.diagnosis import Diagnosis
from dlq_handler.diagnosis.shared_view import decode
from dlq_handler.diagnosis.shared_view_sql import SharedView, read_shared
from dlq_handler.diagnosis.since import beginnings_of, with_beginnings
from dlq_handler.diagnosis.view import BrakeFact, Unknown, View
from dlq_handler.safety import brake_sql


async def observe(
    database: Database, collect: Callable[[], Awaitable[View]]
) -> tuple[View, tuple[Diagnosis, ...]]:
    """`collect()` is called only without a valid shared view: what it needs takes long to import and to connect."""
    shared = await answer_of(read_shared(database))
    if isinstance(shared, SharedView) and shared.is_valid and shared.parts is not None:
        observation = await decode(shared.parts)
        if observation is not None:
            view = await _with_brake(observation.view, database)
            return view, with_beginnings(diagnose(view), observation.beginnings)
    view = await collect()
    known: dict[Check, datetime] | Unknown = {}
    if view.has_database:
        known = await answer_of(beginnings_on_record(database, view.at))
    return view, with_beginnings(diagnose(view), {} if isinstance(known, Unknown) else known)


async def beginnings_on_record(database: Database, at: datetime) -> dict[Check, datetime]:
    recorded = await diagnoses_sql.as_of(database, at)
    return beginnings_of(recorded[1]) if recorded else {}


async def _with_brake(view: View, database: Database) -> View:
    """An operator who has just changed the brake sees the change."""
    if isinstance(view.brake, Unknown):
        return view
    read = await answer_of(_read_brake(database, view.brake))
    return replace(view, brake=read)


async def _read_brake(database: Database, before: BrakeFact) -> BrakeFact:
    async with database.transaction() as tx:
        return replace(before, view=await brake_sql.read_brake(tx))
