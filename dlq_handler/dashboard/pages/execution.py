"""One execution: what happened to it, in order, by whom; and while it is open, why it still waits."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from starlette.requests import Request
from starlette.responses import Response

from dlq_handler.dashboard import words
from dlq_handler.dashboard.errors import away_page
from dlq_handler.dashboard.shell import render
from dlq_handler.dashboard.site import Site
from dlq_handler.dashboard.story import operations_on, timeline
from dlq_handler.dead_letters.no_record import no_record_sentence
from dlq_handler.explain.explain import Explanation
from dlq_handler.operations import audit_sql as operations
from dlq_handler.operations.operation import Operation
from dlq_handler.web.errors import Refused

_OPERATIONS_READ = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionFacts:
    explanation: Explanation | None
    operations: Sequence[Operation] = ()


async def gather(site: Site, execution_id: int) -> ExecutionFacts:
    explanation = await site.world.services.explain(execution_id)
    if explanation is None or not explanation.records.letters:
        return ExecutionFacts(explanation=explanation)
    letters = explanation.records.letters
    found = await operations.list_operations(
        site.world.database,
        since=min(one.received_at for one in letters) - timedelta(seconds=1),
        limit=_OPERATIONS_READ,
    )
    return ExecutionFacts(explanation=explanation, operations=operations_on(letters, found))


async def execution_page(site: Site, request: Request, execution_id: int) -> Response:
    remembered = await site.ask(f"/executions/{execution_id}", lambda: gather(site, execution_id))
    facts = remembered.facts
    if facts is None:
        return away_page(site, request, remembered.away, back=("/letters", "All letters"))
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
        "away": remembered.away,
    }
    return render("execution.html", site.shell(request, title, here="/letters"), context)
