"""One execution: what happened to it, in order of time and by which component. While it is open: why it waits."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from starlette.requests import Request
from starlette.responses import Response

from dlq_handler.dashboard import words
from dlq_handler.dashboard.shell import render
from dlq_handler.dashboard.site import Site
from dlq_handler.dashboard.words import lapse, sentence
from dlq_handler.dead_letters.listing import no_record_sentence
from dlq_handler.explain.explain import Explanation
from dlq_handler.explain.story import Kind, Moment
from dlq_handler.host.execution import ExecutionStatus
from dlq_handler.operations import audit_sql
from dlq_handler.operations.operation import Action, Operation
from dlq_handler.web.errors import Refused

# The actor of a moment, unless the record names one.
_WHO: Mapping[Kind, str] = {
    Kind.CREATED: "api",
    Kind.DISPATCHED: "executor",
    Kind.MOVED: "executor",
    Kind.DEAD_LETTERED: "broker",
    Kind.DECIDED: "dlq-handler",
    Kind.CHANGED: "dlq-handler",
    Kind.PUBLISHED: "dlq-handler",
    Kind.UNCONFIRMED: "dlq-handler",
    Kind.REVERTED_BY_WORKER: "worker",
    Kind.ENDED: "executor",
    Kind.TOUCHED: "executor",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEntry:
    at: datetime
    gap: str | None
    """Since the one before."""
    who: str
    what: str
    by: str | None
    evidence: Sequence[tuple[str, str]]


def timeline(moments: Sequence[Moment], operations: Sequence[Operation]) -> Sequence[TimelineEntry]:
    moments_ = [
        *((one.at, _who(one), _text(one), one.by, facts(one.evidence)) for one in moments),
        *((one.at, "operator", _done(one), one.username, ()) for one in operations),
    ]
    moments_.sort(key=lambda one: one[0])
    entries: list[TimelineEntry] = []
    for at, who, what, by, evidence in moments_:
        gap = None if not entries else f"+{lapse((at - entries[-1].at).total_seconds())}"
        entries.append(TimelineEntry(at=at, gap=gap, who=who, what=what, by=by, evidence=evidence))
    return entries


def facts(evidence: Mapping[str, object]) -> Sequence[tuple[str, str]]:
    """Name and value; what is inside of something has the outer name before its own."""
    return list(_flat(evidence, ""))


def _flat(value: object, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for inner, one in value.items():
            yield from _flat(one, f"{name}.{inner}" if name else str(inner))
    elif value is not None:
        # A list as JSON, not as Python writes it.
        yield name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _who(one: Moment) -> str:
    """A worker sets its execution to running, the executor makes all other moves."""
    is_run = one.kind is Kind.MOVED and one.status == ExecutionStatus.RUNNING
    return "worker" if is_run else _WHO[one.kind]


def _text(one: Moment) -> str:
    shadow = "(shadow: nothing was done) " if one.is_shadow else ""
    return f"{shadow}{sentence(one.kind.value).rstrip('.')}: {one.text}"


def _done(one: Operation) -> str:
    word = "Read the raw body" if one.action == Action.LETTER_BODY_READ else "Queued for reprocessing"
    comment = f" Comment: {one.comment}" if one.comment else ""
    return f"{word} ({one.target}): {one.result}.{comment}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionPageFacts:
    explanation: Explanation | None
    operations: Sequence[Operation] = ()


async def gather(site: Site, execution_id: int) -> ExecutionPageFacts:
    explanation = await site.world.services.explain(execution_id)
    if explanation is None or not explanation.records.letters:
        return ExecutionPageFacts(explanation=explanation)
    letters = explanation.records.letters
    found = await audit_sql.operations_on(
        site.world.database,
        letter_ids=[one.id for one in letters],
        group_ids=[one.group_id for one in letters if one.group_id is not None],
        since=min(one.received_at for one in letters),
    )
    return ExecutionPageFacts(explanation=explanation, operations=found)


async def execution_page(site: Site, request: Request, execution_id: int) -> Response:
    remembered = await site.ask(f"/executions/{execution_id}", lambda: gather(site, execution_id))
    facts = remembered.facts
    if facts is None:
        return site.outage_page(request, remembered.outage, back=("/letters", "All letters"))
    explanation = facts.explanation
    if explanation is None:
        raise Refused(
            404,
            f"{no_record_sentence(site.world.retention.resolved_seconds)} While the brake or the safety gate stops "
            "decisions, dead letters wait in the queue.",
        )
    entries = timeline(explanation.moments, facts.operations)
    execution = explanation.records.execution
    title = f"Execution {execution_id}: {execution.status if execution else 'no longer on the host'}"
    context = {
        "id": execution_id,
        "execution": execution,
        "title": title,
        "entries": entries,
        "waiting": explanation.waiting,
        "letters": explanation.records.letters,
        "has_history": explanation.records.history is not None,
        "worker_name": site.worker_names.get((execution.worker_id if execution else None) or 0),
        "age": None if execution is None else words.ago(execution.updated, site.now),
        "command": f"dlq-handler executions explain {execution_id}",
        "outage": remembered.outage,
    }
    return render("execution.html", site.shell(request, title, here="/letters"), context)
