"""Everything that dlq-handler knows of the host is in host/: statements on its tables, its names on the broker, and the
statuses of its rows.
"""

import ast
import re
from pathlib import Path

from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.host import names
from dlq_handler.host.execution import ExecutionStatus
from dlq_handler.host.owners import SYSTEM_QUEUES, worker_queues
from dlq_handler.host.worker import WorkerStatus
from dlq_handler.timeouts.decision import StaleOutcome
from tests.support.host_sql import PACKAGE, reference_schema, strings_of, tables_named_in

HOST = PACKAGE / "host"
OTHERS = sorted(path for path in PACKAGE.rglob("*.py") if not path.is_relative_to(HOST))
NAMES = {
    name
    for constant, value in vars(names).items()
    if constant.isupper() and isinstance(value, str | tuple)
    for name in ([value] if isinstance(value, str) else value)
} | {name for queue in (*SYSTEM_QUEUES, *worker_queues()[1:]) for name in (queue.name, *queue.keys)}
# The first queue of a worker has settings, which name their defaults. One character, which other patterns hold too.
NAMES -= {names.STOCK_BINDING_KEY}

# Not searched for: values of dlq-handler's own outcomes, which its own enums must spell; and `error`, which is a log
# level and a key of results and answers.
OWN_WORDS = {*Outcome, *StaleOutcome, "error"}
STATUSES = {*ExecutionStatus, *WorkerStatus} - OWN_WORDS
# The same words with another meaning.
OTHER_MEANINGS = {
    "broker/admin/management_api.py": {"running"},  # a field of RabbitMQ's management API
    "cli/workers.py": {"scheduled", "running"},  # keys of the JSON output: numbers of executions
    "lifecycle/flow.py": {"active"},  # the status of a flow
}


def constants_of(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_statements_on_tables_of_the_host_are_in_host() -> None:
    found = {str(path.relative_to(PACKAGE)): tables_named_in(path) for path in OTHERS}
    assert {path: tables for path, tables in found.items() if tables} == {}
    assert any(tables_named_in(path) for path in HOST.glob("*_sql.py")), "the search finds nothing at all"


def test_names_of_the_host_are_in_host() -> None:
    assert "execution.requested" in NAMES
    found = {str(path.relative_to(PACKAGE)): constants_of(path) & NAMES for path in OTHERS}
    assert {path: used for path, used in found.items() if used} == {}


def test_statuses_of_the_host_are_in_host() -> None:
    """Other rooms use the members of `ExecutionStatus` and `WorkerStatus`."""
    assert {"running", "scheduled", "canceling", "active", "inactive"} <= STATUSES
    found = {str(path.relative_to(PACKAGE)): constants_of(path) & STATUSES for path in OTHERS}
    assert {path: used for path, used in found.items() if used} == OTHER_MEANINGS


# The only statements that change rows of the host. Each has rights of its own (host/rights.py).
CHANGES = {
    ("host/executions_sql.py", "UPDATE", "execution"),
    # Off by default: cordons of workers whose queues are retired.
    ("host/worker_lifecycle_sql.py", "UPDATE", "worker"),
}


def test_few_statements_change_rows_of_the_host() -> None:
    change = re.compile(r"\b(UPDATE|INSERT INTO|DELETE FROM|TRUNCATE)\s+(?:ONLY\s+)?([a-z_]+)\b(?!\.)")
    found = {
        (str(path.relative_to(PACKAGE)), verb, table)
        for path in sorted(PACKAGE.rglob("*_sql.py"))
        for text in strings_of(path)
        for verb, table in change.findall(text)
        if table in reference_schema()
    }
    assert found == CHANGES
