"""Actions of operators. Each request has a comment for the audit and the version of the state it is based on."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Self

from fastapi import APIRouter, Depends, Request
from pydantic import ConfigDict, Field, StringConstraints, model_validator

from dlq_handler.api.letters import no_letter
from dlq_handler.api.shapes import EVERYWHERE, GROUP_PATTERN, LARGEST_ID, Shape, failures
from dlq_handler.api.state import BrakeNow, brake_now
from dlq_handler.dead_letters import records_sql as letters
from dlq_handler.dead_letters.listing import CappedCount
from dlq_handler.dead_letters.reprocess import Reprocessed
from dlq_handler.operations.operations import LONGEST_COMMENT
from dlq_handler.web.errors import Refused
from dlq_handler.web.users import needs_operate, user_of
from dlq_handler.web.world import UiWorld

LONGEST_RELEASE_SECONDS = 86_400
# Decided before the answer, for which the client waits.
DECIDED_AT_ONCE = 20

Comment = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=LONGEST_COMMENT)]
Version = Annotated[str, StringConstraints(min_length=1, max_length=64)]


class Ask(Shape):
    model_config = ConfigDict(extra="forbid")

    comment: Comment = Field(description="Why; it stands in the audit.")
    version: Version = Field(description="Of the state as you saw it; 409 if it has changed since.")


class ReleaseAsk(Ask):
    for_seconds: Annotated[float, Field(ge=0, le=LONGEST_RELEASE_SECONDS, allow_inf_nan=False)] = 600
    """Time without a limit; 0: the limit applies at once."""


class ReprocessAsk(Ask):
    letter_id: Annotated[int, Field(ge=1, le=LARGEST_ID)] | None = None
    group: Annotated[str, Field(pattern=GROUP_PATTERN)] | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.letter_id is None) == (self.group is None):
            raise ValueError("either letter_id or group")
        return self


class ReleasedShape(Shape):
    operation_id: int
    """Its line in the audit, as in all answers here."""
    brake: BrakeNow


class ReprocessingShape(Shape):
    operation_id: int
    letters: int
    """Number of dead letters queued for reprocessing."""
    decided: Sequence[Reprocessed]
    """Those that were decided at once."""
    waiting: Mapping[int, str]
    """Some of those that wait, and why; a replica decides them later."""
    left: CappedCount
    """Dead letters of a very large group that were not queued: send the request again."""


def action_routes(world: UiWorld) -> APIRouter:
    router = APIRouter(
        tags=["operating"],
        dependencies=[Depends(needs_operate)],
        responses=EVERYWHERE | failures(400, 403, 409),
    )
    operating = world.operating

    @router.post("/brake/release")
    async def release_brake(request: Request, ask: ReleaseAsk) -> ReleasedShape:
        """Release the brake: executions are ended again, without a limit for a while."""
        done = await operating.release_brake(
            user_of(request).actor, comment=ask.comment, version=ask.version, for_seconds=ask.for_seconds
        )
        return ReleasedShape(operation_id=done.operation_id, brake=brake_now(world, done.view))

    @router.post("/letters/reprocess", responses=failures(404))
    async def reprocess(request: Request, ask: ReprocessAsk) -> ReprocessingShape:
        """Reprocess one recorded dead letter, or those of a group: 10,000 at a time, decided longest ago first."""
        done = await operating.reprocess(
            user_of(request).actor,
            letter_ids=None if ask.letter_id is None else [ask.letter_id],
            group=ask.group,
            comment=ask.comment,
            version=ask.version,
            at_once=DECIDED_AT_ONCE,
        )
        if done.operation_id is None:
            raise await _nothing_to_decide(world, ask)
        waiting = dict(list(done.waiting.items())[:DECIDED_AT_ONCE])
        return ReprocessingShape(
            operation_id=done.operation_id,
            letters=len(done.letter_ids),
            decided=done.decided,
            waiting=waiting,
            left=done.left,
        )

    return router


async def _nothing_to_decide(world: UiWorld, ask: ReprocessAsk) -> Refused:
    if ask.letter_id is None:
        return Refused(409, f"No letter of group {ask.group} can be reprocessed. Nothing was done.")
    record = await letters.show(world.database, ask.letter_id)
    if record is None:
        return no_letter(world)
    return Refused(409, f"Letter {ask.letter_id} is resolved: {record.outcome.value}. Nothing was done.")
