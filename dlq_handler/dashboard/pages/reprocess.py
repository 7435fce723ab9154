"""Reprocess recorded dead letters: one, or those of a group."""

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response

from dlq_handler.dashboard.pages.actions import Action, Doing, Done, carry_out, confirm
from dlq_handler.dashboard.pages.groups import group_not_on_record, timelines_of
from dlq_handler.dashboard.pages.letter import not_on_record
from dlq_handler.dashboard.site import Site
from dlq_handler.dashboard.words import counted, with_full_stop
from dlq_handler.dead_letters import groups_sql
from dlq_handler.dead_letters import records_sql as letters
from dlq_handler.dead_letters.decision import REPROCESSABLE, Outcome
from dlq_handler.dead_letters.filter import CappedCount
from dlq_handler.dead_letters.group import title_in
from dlq_handler.dead_letters.record import LetterRecord
from dlq_handler.dead_letters.reprocess_sql import read_group_state
from dlq_handler.dead_letters.state_version import group_version, letter_version
from dlq_handler.operations.operation import Actor
from dlq_handler.operations.operations import QueuedReprocessing

# The person who pressed the button waits for these; sidecars take up the others.
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
    action = Action(
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
    return f"{record.outcome.value.replace('_', ' ').capitalize()} is settled for good."


async def reprocess_group_page(site: Site, request: Request, group_id: str) -> Response:
    group = await groups_sql.group(site.world.database, group_id)
    if group is None:
        raise group_not_on_record(site)
    async with site.world.database.transaction() as tx:
        kept = await read_group_state(tx, group_id)
    ttl_seconds = site.world.ttl_seconds
    timelines = await timelines_of(site.world.database, group, ttl_seconds=ttl_seconds)
    title = title_in(group, timelines, site.worker_names, ttl_seconds=ttl_seconds)
    action = Action(
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


async def _answer(site: Site, request: Request, action: Action, decide: Doing) -> Response:
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
        [f"{counted(more, 'more letter')} wait; sidecars take them up one after the other."]
        if more > 0
        else []
    )
    left = [f"Left in this group: {queued.left}. Open this page again for them."] if queued.left.count else []
    return Done(
        title=f"{counted(len(queued.letter_ids), 'letter')} queued for reprocessing",
        lines=[*decided, *waiting, *passed, *rest, *left],
    )
