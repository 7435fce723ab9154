"""Release the brake. How many letters that lets go is asked of the broker for this page: the last look may be from
before they came.
"""

import asyncio
from dataclasses import dataclass

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response

from dlq_handler.dashboard.pages.actions import (
    Action,
    Choice,
    Doing,
    Done,
    carry_out,
    chosen_seconds,
    confirm,
)
from dlq_handler.dashboard.site import Site
from dlq_handler.dashboard.words import ago, counted, moment, with_full_stop
from dlq_handler.dead_letters.state_version import brake_version
from dlq_handler.diagnosis.view import QueueFact
from dlq_handler.errors import Unavailable
from dlq_handler.operations.operation import Actor
from dlq_handler.safety import brake as the_brake
from dlq_handler.safety import brake_sql as brake_store
from dlq_handler.safety.brake import BrakeMode, BrakeView, mode_of
from dlq_handler.topology.consumers import Consumers

FOR = Choice(
    name="for_seconds",
    label="For how long without a limit",
    options=(
        ("600", "10 minutes"),
        ("1800", "30 minutes"),
        ("3600", "1 hour"),
        ("0", "not at all: the limit holds again at once"),
    ),
)


# Who confirms in haste must not wait for a broker that is stuck.
_ASK_SECONDS = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    letters: str
    """In words: "12 dead letters"."""
    seen: str | None
    """How long ago; None: just now."""


async def release_page(site: Site, request: Request) -> Response:
    action = _act(site, await _look(site), await _waiting(site))
    if request.method == "POST":
        return await carry_out(site, request, action, _release(site))
    return await confirm(site, request, action)


async def _look(site: Site) -> BrakeView:
    async with site.world.database.transaction() as tx:
        return await brake_store.look(tx)


def _act(site: Site, seen: BrakeView, waiting: Waiting | None) -> Action:
    policy = site.world.brake_policy
    decided = "the dead letters" if waiting is None else waiting.letters
    aged = f" (as seen {waiting.seen})" if waiting is not None and waiting.seen else ""
    is_tripped = mode_of(seen, policy).is_tripped
    return Action(
        title="Release the brake",
        happens=[
            with_full_stop(f"The brake is {the_brake.in_words(seen, policy)}"),
            f"Afterwards {decided} in the intake queue{aged} are decided, and their executions end as failed.",
            f"{counted(seen.ended_last_minute, 'execution was', 'executions were')} ended in the last minute.",
            "An ended execution cannot be reopened: its owner has to run it again.",
            "First check whether the workers are really unavailable. If they are not, do not release the brake.",
        ]
        if is_tripped
        else (),
        button=f"Release brake, decide {decided}{aged}",
        version=brake_version(seen.state),
        back=("/", "Now"),
        here="/",
        choice=FOR,
        impossible=None if is_tripped else _not_tripped(mode_of(seen, policy)),
    )


def _not_tripped(mode: BrakeMode) -> str:
    match mode:
        case BrakeMode.OFF:
            return "No limit is set, so there is no brake to release."
        case BrakeMode.RELEASED:
            return "It is released already."
        case _:
            return "It is not tripped, so there is nothing to release."


async def _waiting(site: Site) -> Waiting | None:
    """By the broker, or else as the last look saw it; None: unknown."""
    try:
        async with asyncio.timeout(_ASK_SECONDS):
            taken = await site.world.services.count_intake()
    except (Unavailable, TimeoutError):
        taken = None
    if taken is not None:
        return Waiting(letters=_letters(taken), seen=None)
    seen = None if site.view is None else site.view.intake
    if not isinstance(seen, QueueFact) or seen.consumers is None:
        return None
    return Waiting(letters=_letters(seen.consumers), seen=ago(site.observed_at, site.now))


def _letters(taken: Consumers) -> str:
    at_least = "" if taken.unacknowledged is not None else "at least "
    return at_least + counted(taken.waiting, "dead letter")


def _release(site: Site) -> Doing:
    async def release(actor: Actor, comment: str, version: str, form: FormData) -> Done:
        released = await site.world.operating.release_brake(
            actor, comment=comment, version=version, for_seconds=chosen_seconds(form, FOR)
        )
        until = released.view.state.released_until
        limit = (
            "The limit holds again." if until is None else f"No limit until {moment(until, site.now)} UTC."
        )
        return Done(
            title="The brake is released", lines=[limit, "Sidecars take letters again within seconds."]
        )

    return release
