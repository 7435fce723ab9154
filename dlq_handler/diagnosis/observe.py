"""One observation for a command: the view that the leader shares, or without a valid one a view of its own.

A replica in the other mode (live or shadow mode) reads another intake queue: its view is never taken.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandObservation:
    view: View
    diagnoses: tuple[Diagnosis, ...]
    replica: str | None = None
    """The replica that made the view; None: this command."""
    age_seconds: float = 0.0


async def observe(
    database: Database, collect: Callable[[], Awaitable[View]], *, is_shadow: bool
) -> CommandObservation:
    """`collect()` is called only without a valid shared view: what it needs takes long to import and to connect.

    `is_shadow`: the mode of the settings.
    """
    shared = await _read_valid(database)
    live_replica = None
    if shared is not None and (observation := await decode(shared.parts or ())) is not None:
        if observation.view.is_shadow == is_shadow:
            view = await _with_brake(observation.view, database)
            return CommandObservation(
                view=view,
                diagnoses=with_beginnings(diagnose(view), observation.beginnings),
                replica=shared.replica,
                age_seconds=shared.age_seconds,
            )
        live_replica = shared.replica if is_shadow else None
    view = replace(await collect(), live_replica=live_replica)
    known: dict[Check, datetime] | Unknown = {}
    if view.has_database:
        known = await answer_of(beginnings_on_record(database, view.at))
    return CommandObservation(
        view=view, diagnoses=with_beginnings(diagnose(view), {} if isinstance(known, Unknown) else known)
    )


async def with_live_replica(view: View, database: Database) -> View:
    """For settings in shadow mode: the replica in live mode that shares its view of the same tables."""
    shared = await _read_valid(database)
    # The mode is in the first part; a large fleet is in the others.
    observation = None if shared is None else await decode((shared.parts or ())[:1])
    if shared is None or observation is None or observation.view.is_shadow is not False:
        return view
    return replace(view, live_replica=shared.replica)


async def _read_valid(database: Database) -> SharedView | None:
    shared = await answer_of(read_shared(database))
    return shared if isinstance(shared, SharedView) and shared.is_valid and shared.parts else None


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
