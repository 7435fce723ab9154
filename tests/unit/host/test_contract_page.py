"""The page about the host contract names what the code uses, all of it and nothing else."""

import ast
import json
import re
from datetime import UTC, datetime
from pathlib import Path

from dlq_handler.broker.outgoing import PUBLISH_CHECK_PREFIX
from dlq_handler.host.database_state_sql import NEEDED_COLUMNS
from dlq_handler.host.execution import TERMINAL, TRANSITIONS, Execution, ExecutionStatus
from dlq_handler.host.messages import completion_event, repeated_request
from dlq_handler.host.names import (
    CANCEL_KEY_PATTERN,
    COMPLETED_QUEUE,
    DISPATCH_MESSAGE_TYPE,
    KEYS_OF_PATTERNS,
    OTHER_KEYS,
    REQUESTED_KEY,
    REQUESTS_QUEUE,
    STOCK_QUEUE,
)
from dlq_handler.host.owners import SERVICE_QUEUES
from dlq_handler.host.rights import attune_rights, feature_needs
from dlq_handler.settings import Settings
from dlq_handler.settings.keys import known_keys
from dlq_handler.topology.canary import CANARY_EXCHANGE, CANARY_QUEUE
from tests.support.builders import COMPLETIONS
from tests.support.host_sql import PACKAGE, ROOT, host_names, reference_types

PAGE = (ROOT / "docs/reference/host-contract.md").read_text()
KEYS = {key.name: key for key in known_keys().values()}
BLUEPRINT = Settings().blueprint
EXECUTION = Execution(
    id=1,
    status=ExecutionStatus.SCHEDULED,
    updated=datetime(2026, 1, 1, tzinfo=UTC),
    worker_id=1,
    action_id=1,
    action_ref="core.echo",
)
COMPLETED = json.loads(
    completion_event(
        EXECUTION,
        ExecutionStatus.FAILED,
        {},
        destination=COMPLETIONS,
        correlation_id=None,
        now=datetime(2026, 1, 1, tzinfo=UTC),
    ).body
)
REQUESTED = json.loads(
    repeated_request(
        EXECUTION,
        parent_id=None,
        enforcement_id=None,
        config=None,
        number=1,
        destination=COMPLETIONS,
        now=datetime(2026, 1, 1, tzinfo=UTC),
    ).body
)


def names_in(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def section(heading: str) -> str:
    marks, _, title = heading.partition(" ")
    found = re.search(rf"^{marks} {title}\n(.*?)(?=^#{{1,{len(marks)}}} |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, heading
    return found[1]


def rows(heading: str) -> list[list[str]]:
    lines = [line for line in section(heading).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def named_in_first_cell(heading: str) -> list[str]:
    return [name for row in rows(heading) for name in names_in(row[0])]


def strings_in(*paths: Path) -> set[str]:
    return {
        node.value
        for path in paths
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def broker_words() -> set[str]:
    """Queue arguments and message headers that decide about the route of a dead letter."""
    paths = [PACKAGE / "topology" / f"{name}.py" for name in ("blueprint", "routing", "drift")]
    paths.append(PACKAGE / "broker" / "admin" / "snapshot.py")
    paths += (PACKAGE / "dead_letters").glob("parse*.py")
    # `x-match` belongs to bindings of headers exchanges, which Attune does not have.
    return {word for word in strings_in(*paths) if re.fullmatch(r"x-[a-z-]+", word)} - {"x-match"}


def fields_read() -> set[str]:
    """The fields that the reader of dead letters takes from the envelope and from its payload."""
    tree = ast.parse((PACKAGE / "dead_letters/parse.py").read_text())
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="envelope" | "payload" as owner), attr="get"),
                args=[ast.Constant(value=str(name))],
            ):
                found.add(name if owner == "envelope" else f"payload.{name}")
            case _:
                pass
    return found


def result_fields() -> set[str]:
    """Of `failure_result` for a dead letter, and of the decisions of the timeout monitor."""
    module = ast.parse((PACKAGE / "dead_letters" / "failure_result.py").read_text())
    [failure] = [one for one in ast.walk(module) if getattr(one, "name", "") == "failure_result"]
    timeouts = ast.parse((PACKAGE / "timeouts" / "decision.py").read_text())
    keys: set[str] = set()
    for node in (*ast.walk(failure), *ast.walk(timeouts)):
        match node:
            case ast.Dict():
                keys |= {
                    part.value
                    for key in node.keys
                    if key is not None
                    for part in ([key.body, key.orelse] if isinstance(key, ast.IfExp) else [key])
                    if isinstance(part, ast.Constant) and isinstance(part.value, str)
                }
            case ast.Subscript(slice=ast.Constant(value=str(name)), ctx=ast.Store()):
                keys.add(name)
            case _:
                pass
    return keys


def test_rights_are_those_that_are_granted() -> None:
    rights = attune_rights("attune")
    granted = [(need.table, need.privilege, need.columns, need.is_required) for need in rights.needs]
    shown = []
    for table, right, must_exist, _ in rows("### Tables and rights"):
        privilege, *columns = names_in(right)
        shown.append((*names_in(table), privilege, tuple(columns), must_exist == "yes"))
    assert shown == granted
    assert [one.name for one in rights.sequences] == re.findall(r"`USAGE` on the sequence `(\w+)`", PAGE)


def test_rights_of_the_lifecycle_are_those_that_grants_prints() -> None:
    shown = [
        [*names_in(table), *names_in(right)] for table, right, _ in rows("### Rights of the queue lifecycle")
    ]
    assert shown == [[need.table, need.privilege, *need.columns] for need in feature_needs("attune")]


def test_columns_are_those_that_statements_use() -> None:
    shown = named_in_first_cell("### Columns")
    assert sorted(shown) == sorted(host_names().columns)
    written = [names_in(row[0])[0] for row in rows("### Columns") if "**written**" in row[3]]
    assert written == [
        f"{need.table}.{column}" for need in attune_rights("attune").needs for column in need.columns
    ]


def test_every_table_of_a_statement_has_a_row() -> None:
    assert host_names().tables <= set(named_in_first_cell("### Tables and rights"))


def test_columns_that_are_needed_are_those_that_doctor_checks() -> None:
    needed = {names_in(row[0])[0] for row in rows("### Columns") if row[2] == "yes"}
    assert needed == {f"{table}.{column}" for table, columns in NEEDED_COLUMNS.items() for column in columns}
    assert {row[2] for row in rows("### Columns")} == {"yes", "feature", "optional"}


def test_types_of_columns_are_those_of_the_reference_attune() -> None:
    types = reference_types()
    assert {names_in(row[0])[0]: row[1] for row in rows("### Columns")} == {
        name: types[name] for name in named_in_first_cell("### Columns")
    }


def test_json_fields_are_those_that_statements_read() -> None:
    assert sorted(named_in_first_cell("### JSON fields")) == sorted(host_names().json_fields)
    written = section("### JSON fields").partition("dlq-handler replaces")[2]
    assert set(names_in(written)) - {"execution.result"} == result_fields()


def test_statuses_and_changes_are_those_of_the_code() -> None:
    shown = {names_in(row[0])[0]: set(names_in(row[1])) for row in rows("### Statuses")}
    assert shown == {
        status.value: {after.value for after in TRANSITIONS.get(status, ())} for status in ExecutionStatus
    }
    terminal = {names_in(row[0])[0] for row in rows("### Statuses") if row[2] == "terminal"}
    assert terminal == {status.value for status in TERMINAL}


def test_exchanges_are_those_of_the_blueprint() -> None:
    shown = {(names_in(row[0])[0], row[1]) for row in rows("### Exchanges")}
    assert shown == {(one.name, one.type) for one in BLUEPRINT.exchanges}


def test_queues_are_those_that_the_code_names() -> None:
    expected = {STOCK_QUEUE, Settings().dlq_handler.shadow.queue, BLUEPRINT.workers.queue_pattern}
    assert set(named_in_first_cell("### Queues")) == expected | {*SERVICE_QUEUES}
    assert {COMPLETED_QUEUE, REQUESTS_QUEUE} <= {*SERVICE_QUEUES}


def test_routing_keys_are_those_that_the_code_names() -> None:
    expected = {
        BLUEPRINT.workers.routing_key_pattern,
        Settings().dlq_handler.outbox.routing_key,
        REQUESTED_KEY,
    }
    assert set(named_in_first_cell("### Routing keys")) == expected | {CANCEL_KEY_PATTERN, *OTHER_KEYS}


def test_a_name_with_a_setting_is_the_default_of_that_setting() -> None:
    for heading, place in (("### Exchanges", 2), ("### Queues", 1), ("### Routing keys", 1)):
        for row in rows(heading):
            if row[place] != "fixed":
                [key] = names_in(row[place])
                assert KEYS[key].default == names_in(row[0])[0]
    for key, value in re.findall(r"`([a-z_.]+)` \(setting, `([a-z_]+)`\)", PAGE):
        assert KEYS[key].default == value


def test_every_setting_that_names_something_of_the_host_is_on_the_page() -> None:
    naming = re.compile(r".*(?:\.exchange|\.queue|\.routing_key|_pattern|\.schema)")
    assert {name for name in KEYS if naming.fullmatch(name)} <= set(names_in(PAGE))


def test_queue_arguments_and_headers_are_those_that_the_code_reads() -> None:
    assert {name for name in names_in(PAGE) if name.startswith("x-")} == broker_words()


def test_fields_of_messages_are_those_that_the_code_reads_and_writes() -> None:
    assert set(named_in_first_cell("### Fields that dlq-handler reads")) == fields_read()
    published = section("### Fields that dlq-handler publishes")
    envelope = published.partition("|")[0]
    assert set(names_in(envelope)) == {*COMPLETED, *COMPLETED["headers"]}
    payloads = {
        names_in(row[0])[0]: names_in(row[1]) for row in rows("### Fields that dlq-handler publishes")
    }
    assert payloads == {one["message_type"]: [*one["payload"]] for one in (COMPLETED, REQUESTED)}
    assert set(named_in_first_cell("## Messages")) >= {DISPATCH_MESSAGE_TYPE, COMPLETED["message_type"]}


def test_the_page_names_nothing_that_the_code_does_not_know() -> None:
    host = host_names()
    rights = attune_rights("attune")
    written = {column for need in rights.needs for column in need.columns}
    literals = strings_in(*(PACKAGE / "host").glob("*.py"))
    values = {"inactive", "action"} & literals
    values |= {
        value for value in ("queued", "active") if any(f"status = '{value}'" in text for text in literals)
    }
    known = {
        *host.columns,
        *host.json_fields,
        *(need.table for need in rights.needs),
        *(need.privilege for need in rights.needs),
        *(one.name for one in rights.sequences),
        *written,
        *(name for need in feature_needs("attune") for name in (need.table, *need.columns)),
        *values,
        *(status.value for status in ExecutionStatus),
        *(one.name for one in BLUEPRINT.exchanges),
        *SERVICE_QUEUES,
        *OTHER_KEYS,
        *(pattern for _, pattern in KEYS_OF_PATTERNS),
        *(str(KEYS[key].default) for key in names_in(PAGE) if key in KEYS),
        CANCEL_KEY_PATTERN,
        CANARY_EXCHANGE,
        CANARY_QUEUE,
        PUBLISH_CHECK_PREFIX,
        *broker_words(),
        *fields_read(),
        *result_fields(),
        *COMPLETED,
        *COMPLETED["headers"],
        *COMPLETED["payload"],
        *REQUESTED["payload"],
        COMPLETED["message_type"],
        DISPATCH_MESSAGE_TYPE,
        *KEYS,
        # Words of PostgreSQL, and our own commands and files.
        *("USAGE", "SECURITY DEFINER", "search_path", "updated"),
        *("dlq-handler grants --feature lifecycle", "--feature orphans"),
        *("dlq-handler doctor", "dlq-handler grants", "dlq-handler topology check", "doctor"),
        *("dlq-handler executions explain", "tests/unit/host/test_contract_page.py"),
    }
    assert [name for name in names_in(PAGE) if name not in known] == []
