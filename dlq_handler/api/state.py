"""How things stand: the diagnosis, and brake, gate and shadow mode, with the versions that acts need."""

from collections.abc import Sequence
from datetime import datetime

from fastapi import APIRouter

from dlq_handler.api.shapes import EVERYWHERE, QueryMoment, Shape, failures
from dlq_handler.dead_letters.listing import brake_version, no_record_sentence
from dlq_handler.diagnosis import diagnoses_sql as diagnoses
from dlq_handler.diagnosis.checks import Check, Component
from dlq_handler.diagnosis.diagnosis import Diagnosis, Health, conclusion_of
from dlq_handler.diagnosis.view import GateFact
from dlq_handler.safety import brake_sql
from dlq_handler.safety.brake import BrakeMode, BrakeView, in_words, mode_of
from dlq_handler.safety.gate import GateCause
from dlq_handler.web.errors import Refused
from dlq_handler.web.world import UiWorld


class DiagnosisShape(Shape):
    check: Check
    component: Component
    health: Health
    headline: str
    """A short sentence in plain English, without its full stop: the time of `since` may follow it."""
    explanation: str
    since: datetime | None
    evidence: Sequence[str]
    action: str | None
    command: str
    runbook: str | None
    """The page of the documentation."""
    runbook_url: str | None = None
    """The same as a link, where dlq_handler.ui.runbook_url is set."""


class Diagnoses(Shape):
    at: datetime
    """Time of the observation; with `at=`, time of the change."""
    conclusion: Health
    diagnoses: list[DiagnosisShape]
    """The worst first."""


class BrakeNow(Shape):
    mode: BrakeMode
    summary: str | None
    """The state as a sentence; null: it lets everything pass."""
    ended_last_minute: int
    max_decisions_per_minute: int
    tripped_at: datetime | None
    tripped_by: str | None
    explanation: str | None
    hold_until: datetime | None
    released_at: datetime | None
    released_by: str | None
    released_until: datetime | None
    version: str
    """To be sent back with POST /brake/release."""


class GateNow(Shape):
    is_open: bool | None
    """null: unknown."""
    causes: Sequence[GateCause]
    explanation: str | None
    replica: str
    """The replica that answers: each has a gate of its own."""


class ShadowNow(Shape):
    is_shadow: bool
    """This replica decides on copies; it ends no execution and publishes nothing."""


def state_routes(world: UiWorld) -> APIRouter:
    router = APIRouter(tags=["state"], responses=EVERYWHERE)

    @router.get("/diagnosis", responses=failures(404))
    async def diagnosis(at: QueryMoment = None) -> Diagnoses:
        """What is wrong, since when, and the next step; with `at`, as diagnosed at that moment."""
        if at is None:
            seen = world.diagnoser.latest
            return _diagnoses(world, world.seen_at, () if seen is None else seen.diagnoses)
        past = await diagnoses.as_of(world.database, at)
        if past is None:
            raise Refused(404, no_record_sentence(world.retention.history_seconds))
        return _diagnoses(world, *past)

    @router.get("/brake")
    async def show_brake() -> BrakeNow:
        async with world.database.transaction() as tx:
            view = await brake_sql.read_brake(tx)
        return brake_now(world, view)

    @router.get("/gate")
    async def show_gate() -> GateNow:
        seen = None if world.diagnoser.latest is None else world.diagnoser.latest.view.gate
        if isinstance(seen, GateFact):
            causes = sorted(seen.causes)
            return GateNow(
                is_open=not causes, causes=causes, explanation=seen.explanation, replica=world.replica
            )
        explanation = "no observation has been made yet" if seen is None else seen.explanation
        return GateNow(is_open=None, causes=[], explanation=explanation, replica=world.replica)

    @router.get("/shadow")
    async def show_shadow() -> ShadowNow:
        return ShadowNow(is_shadow=world.is_shadow)

    return router


def brake_now(world: UiWorld, view: BrakeView) -> BrakeNow:
    state, policy = view.state, world.brake_policy
    return BrakeNow(
        mode=mode_of(view, policy),
        summary=in_words(view, policy),
        ended_last_minute=view.ended_last_minute,
        max_decisions_per_minute=policy.max_decisions_per_minute,
        tripped_at=state.tripped_at,
        tripped_by=state.tripped_by,
        explanation=state.explanation,
        hold_until=state.hold_until,
        released_at=state.released_at,
        released_by=state.released_by,
        released_until=state.released_until,
        version=brake_version(state),
    )


def _diagnoses(world: UiWorld, at: datetime, found: Sequence[Diagnosis]) -> Diagnoses:
    return Diagnoses(
        at=at,
        conclusion=conclusion_of(found),
        diagnoses=[
            DiagnosisShape.model_validate(one).model_copy(
                update={"runbook_url": world.runbook_link(one.runbook)}
            )
            for one in found
        ],
    )
