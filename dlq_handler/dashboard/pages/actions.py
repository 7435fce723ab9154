"""Operating: a page of its own for each action, which works without a script.

It shows the effect, the number of dead letters and what cannot be undone, and asks for a comment; the button names the
action. Users who may only read see which role is needed. The next page shows the result, with a link to the audit.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response

from dlq_handler.dashboard.pages.groups import group_not_on_record, timelines_of
from dlq_handler.dashboard.pages.letters import not_on_record
from dlq_handler.dashboard.shell import render
from dlq_handler.dashboard.site import Site
from dlq_handler.dashboard.words import ago, counted, moment, with_full_stop
from dlq_handler.dead_letters import groups_sql
from dlq_handler.dead_letters import records_sql as letters
from dlq_handler.dead_letters.decision import REPROCESSABLE, Outcome
from dlq_handler.dead_letters.group import title_in
from dlq_handler.dead_letters.listing import (
    CappedCount,
    LetterRecord,
    brake_version,
    group_version,
    letter_version,
)
from dlq_handler.dead_letters.reprocess_sql import read_group_state
from dlq_handler.diagnosis.view import QueueFact
from dlq_handler.errors import Unavailable
from dlq_handler.operations.operation import Actor
from dlq_handler.operations.operations import LONGEST_COMMENT, Impossible, QueuedReprocessing
from dlq_handler.safety import brake as the_brake
from dlq_handler.safety import brake_sql as brake_store
from dlq_handler.safety.brake import BrakeMode, BrakeView, mode_of
from dlq_handler.topology.consumers import Consumers
from dlq_handler.web.errors import Refused
from dlq_handler.web.guard import csrf_of
from dlq_handler.web.users import needs_operate, user_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How long; the first one is chosen."""

    name: str
    label: str
    options: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionForm:
    title: str
    happens: Sequence[str]
    """What will happen, to how many, and what cannot be undone."""
    button: str
    version: str
    """Of the state that this page shows: when another one holds by then, nothing is done."""
    back: tuple[str, str]
    here: str | None = None
    choice: Choice | None = None
    impossible: str | None = None
    """Why it cannot be done at all; then there is no button."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    title: str
    lines: Sequence[str]


Doing = Callable[[Actor, str, str, FormData], Awaitable[Done]]
"""Actor, reason, version, and the form for whatever else was chosen."""


async def confirm(
    site: Site, request: Request, action: ActionForm, *, problem: str | None = None, comment: str = ""
) -> Response:
    user = user_of(request)
    context = {
        "action": action,
        "may": user.may_operate,
        "user": user,
        "csrf": csrf_of(request),
        "problem": problem,
        "comment": comment,
        "longest": LONGEST_COMMENT,
    }
    shell = site.shell(request, action.title, here=action.here)
    return render("action.html", shell, context, status=422 if problem else 200)


async def carry_out(site: Site, request: Request, action: ActionForm, doing: Doing) -> Response:
    needs_operate(request)
    if action.impossible is not None:
        raise Refused(409, f"{action.impossible} Nothing was done.")
    form = await request.form()
    comment = str(form.get("comment", "")).strip()
    if not comment or len(comment) > LONGEST_COMMENT:
        wanted = f"A reason is needed, of at most {LONGEST_COMMENT} characters: the audit shows it. Nothing was done."
        return await confirm(site, request, action, problem=wanted, comment=comment[:LONGEST_COMMENT])
    try:
        done = await doing(user_of(request).actor, comment, str(form.get("version", "")), form)
    except Impossible as error:
        raise Refused(409, f"{error}. Nothing was done.") from error
    context = {"done": done, "back": action.back}
    return render("done.html", site.shell(request, done.title, here=action.here), context)


def chosen_seconds(form: FormData, choice: Choice) -> float:
    given = str(form.get(choice.name, ""))
    if given not in [value for value, _ in choice.options]:
        raise Refused(422, f"{choice.label}: choose one of those that the page offers. Nothing was done.")
    return float(given)


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
class WaitingLetters:
    letters: str
    """In words: "12 dead letters"."""
    seen: str | None
    """How long ago; None: just now."""


async def release_page(site: Site, request: Request) -> Response:
    action = _act(site, await _read_brake(site), await _waiting(site))
    if request.method == "POST":
        return await carry_out(site, request, action, _release(site))
    return await confirm(site, request, action)


async def _read_brake(site: Site) -> BrakeView:
    async with site.world.database.transaction() as tx:
        return await brake_store.read_brake(tx)


def _act(site: Site, seen: BrakeView, waiting: WaitingLetters | None) -> ActionForm:
    policy = site.world.brake_policy
    decided = "the dead letters" if waiting is None else waiting.letters
    aged = f" (as seen {waiting.seen})" if waiting is not None and waiting.seen else ""
    is_tripped = mode_of(seen, policy).is_tripped
    return ActionForm(
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


async def _waiting(site: Site) -> WaitingLetters | None:
    """By the broker, or else as last observed; None: unknown."""
    try:
        async with asyncio.timeout(_ASK_SECONDS):
            taken = await site.world.services.count_intake()
    except (Unavailable, TimeoutError):
        taken = None
    if taken is not None:
        return WaitingLetters(letters=_letters(taken), seen=None)
    seen = None if site.view is None else site.view.intake
    if not isinstance(seen, QueueFact) or seen.consumers is None:
        return None
    return WaitingLetters(letters=_letters(seen.consumers), seen=ago(site.observed_at, site.now))


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
            title="The brake is released",
            lines=[limit, "Replicas receive dead letters again within seconds."],
        )

    return release


# The user who pressed the button waits for these; replicas reprocess the others.
AT_ONCE = 20

_CONSEQUENCE = (
    "Each is decided as if it arrived now. If its execution is still open for the same attempt, the execution is "
    "marked failed and its completion event is published. This cannot be undone: its owner has to run it again."
)


async def reprocess_letter_page(site: Site, request: Request, letter_id: int) -> Response:
    record = await letters.show(site.world.database, letter_id)
    if record is None:
        raise not_on_record(site)
    impossible = _why_not(record)
    action = ActionForm(
        title=f"Reprocess letter {letter_id}",
        happens=[
            with_full_stop(
                f"It is {record.outcome.value.replace('_', ' ')}: {record.error or record.explanation}"
            ),
            _CONSEQUENCE,
        ]
        if impossible is None
        else (),
        button=f"Reprocess letter {letter_id}",
        version=letter_version(record),
        back=(f"/letters/{letter_id}", f"Letter {letter_id}"),
        here="/letters",
        impossible=impossible,
    )

    async def decide(actor: Actor, comment: str, version: str, form: FormData) -> Done:  # noqa: ARG001  # a plain form
        return _done(
            await site.world.operating.reprocess(
                actor, letter_ids=[letter_id], comment=comment, version=version
            )
        )

    return await _answer(site, request, action, decide)


def _why_not(record: LetterRecord) -> str | None:
    """None: it can be reprocessed. If it cannot, the page does not describe the effect."""
    if record.is_shadow:
        return "It was decided in shadow mode: the letter itself went another way."
    if record.outcome in REPROCESSABLE:
        return None
    if record.outcome is Outcome.UNREADABLE:
        return "It cannot be reprocessed: what could not be read then cannot be read now. It stays on record."
    return f"{record.outcome.value.replace('_', ' ').capitalize()} is resolved: it cannot be reprocessed."


async def reprocess_group_page(site: Site, request: Request, group_id: str) -> Response:
    group = await groups_sql.group(site.world.database, group_id)
    if group is None:
        raise group_not_on_record(site)
    async with site.world.database.transaction() as tx:
        kept = await read_group_state(tx, group_id)
    ttl_seconds = site.world.ttl_seconds
    timelines = await timelines_of(site.world.database, group, ttl_seconds=ttl_seconds)
    title = title_in(group, timelines, site.worker_names, ttl_seconds=ttl_seconds)
    action = ActionForm(
        title=f"Reprocess letters: {title}",
        happens=[_reach(kept.letters), _CONSEQUENCE] if kept.letters.count else (),
        button=f"Reprocess {counted(kept.letters.count, 'letter')}",
        version=group_version(kept.digest),
        back=(f"/groups/{group_id}", title),
        here="/letters",
        impossible=None if kept.letters.count else "No letter of this group can be reprocessed.",
    )

    async def decide(actor: Actor, comment: str, version: str, form: FormData) -> Done:  # noqa: ARG001  # a plain form
        queued = await site.world.operating.reprocess(
            actor, group=group_id, comment=comment, version=version, at_once=AT_ONCE
        )
        return _done(queued)

    return await _answer(site, request, action, decide)


async def _answer(site: Site, request: Request, action: ActionForm, decide: Doing) -> Response:
    if request.method == "POST":
        return await carry_out(site, request, action, decide)
    return await confirm(site, request, action)


def _reach(letters: CappedCount) -> str:
    if letters.is_capped:
        return (
            f"{letters} letters of this group can be reprocessed: {letters.count:,} at a time, those decided longest "
            "ago first. Open this page again for the others."
        )
    return f"{counted(letters.count, 'letter')} of this group can be reprocessed, and no others."


def _done(queued: QueuedReprocessing) -> Done:
    decided = [
        with_full_stop(f"Letter {one.record_id}: {one.before.value} → {one.outcome.value}: {one.explanation}")
        for one in queued.decided
    ]
    waiting = [
        with_full_stop(f"Letter {number} waits: {explanation}")
        for number, explanation in list(queued.waiting.items())[:AT_ONCE]
    ]
    passed = [
        with_full_stop(f"Letter {number} was passed over: {explanation}")
        for number, explanation in queued.refused.items()
    ]
    more = len(queued.waiting) - len(waiting)
    rest = (
        [f"{counted(more, 'more letter')} wait; replicas reprocess them one after the other."]
        if more > 0
        else []
    )
    left = [f"Left in this group: {queued.left}. Open this page again for them."] if queued.left.count else []
    return Done(
        title=f"{counted(len(queued.letter_ids), 'letter')} queued for reprocessing",
        lines=[*decided, *waiting, *passed, *rest, *left],
    )
