"""One execution: what happened to it, in order, by whom; and while it is open, why it still waits."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from starlette.requests import Request
from starlette.responses import Response

from dlq_handler.domain.operation import Operation
from dlq_handler.services.explain import Explanation
from dlq_handler.store import operations, swept
from dlq_handler.surface.dashboard import words
from dlq_handler.surface.dashboard.pages.away import away_page
from dlq_handler.surface.dashboard.shell import render
from dlq_handler.surface.dashboard.site import Site
from dlq_handler.surface.dashboard.timeline import operations_on, timeline
from dlq_handler.surface.swept import swept_execution_sentence
from dlq_handler.surface.web.errors import Refused

_OPERATIONS_READ = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionFacts:
    explanation: Explanation | None
    swept_at: datetime | None = None
    """When the last that was on record about it went; None: it is still there, or nobody remembers it."""
    operations: Sequence[Operation] = ()


async def gather(site: Site, execution_id: int) -> ExecutionFacts:
    explanation = await site.world.explain(execution_id)
    if explanation is None:
        swept_at = await swept.execution_swept_at(site.world.database, execution_id)
        return ExecutionFacts(explanation=None, swept_at=swept_at)
    if not explanation.records.letters:
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
    if explanation is None and facts.swept_at is not None:
        raise Refused(410, swept_execution_sentence(execution_id, facts.swept_at, site.world.retention))
    if explanation is None:
        raise Refused(
            404,
            f"There is no execution {execution_id}, and nothing on record about it: mistyped, deleted long ago, of "
            "another database, or its letter still waits in the queue behind a closed gate or brake.",
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
