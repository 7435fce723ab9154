"""`dlq-handler grants`: SQL for the schema that it finds, or for Attune's known one, and says which."""

import pytest

from dlq_handler.database.engine import Database
from dlq_handler.errors import Unavailable
from tests.integration.cli.conftest import Terminal
from tests.support.host_tables import Host

SEQUENCE = 'GRANT USAGE ON SEQUENCE "attune"."{}" TO "dlq_handler";'


def comments(printed: str) -> str:
    return "\n".join(line for line in printed.splitlines() if line.startswith("--"))


@pytest.mark.parametrize("has_sequence", [True, False])
async def test_only_sequences_that_exist_are_granted(
    terminal: Terminal, host: Host, has_sequence: bool
) -> None:
    await host.session.execute("ALTER TABLE execution_history DROP COLUMN IF EXISTS id")
    if has_sequence:
        await host.session.execute("ALTER TABLE execution_history ADD COLUMN id bigserial")

    printed = (await terminal.type("grants")).out

    assert (SEQUENCE.format("execution_history_id_seq") in printed) == has_sequence
    assert SEQUENCE.format("audit_event_id_seq") in printed
    assert "as found in this database" in comments(printed)


async def test_a_table_that_the_host_lacks_is_left_out(terminal: Terminal, host: Host) -> None:
    await host.session.execute("DROP TABLE workflow_execution, execution_admission_entry CASCADE")
    printed = (await terminal.type("grants")).out
    assert "workflow_execution" not in printed
    assert "execution_admission_entry" not in printed
    assert '"execution"' in printed


async def test_a_role_that_does_not_exist_yet_is_named(terminal: Terminal, host: Host) -> None:
    printed = await terminal.type("grants", "--role", "no such\nrole")
    assert "does not exist yet" in comments(printed.out)
    assert r"'no such\nrole'" in comments(printed.out)


async def test_tables_that_another_role_migrated_are_named(
    terminal: Terminal, host: Host, store: Database
) -> None:
    """`store` migrated as the superuser: the new role can use the tables and cannot alter them."""
    printed = (await terminal.type("grants")).out
    assert "belong to postgres" in comments(printed)
    assert "dlq-handler migrate" in comments(printed)


async def test_a_schema_that_is_not_attunes_is_refused(terminal: Terminal, empty_database: str) -> None:
    printed = await terminal.type("grants", ATTUNE__DATABASE__URL=empty_database)
    assert printed.code == 1
    assert printed.out == ""
    assert "no table attune.execution" in printed.err
    assert "database.schema" in printed.err


async def test_offline_connects_to_nothing_and_says_so(terminal: Terminal) -> None:
    away = {"ATTUNE__DATABASE__URL": "postgresql://user@127.0.0.1:1/none"}
    printed = (await terminal.type("grants", "--offline", **away)).out
    assert "Attune's known schema" in comments(printed)
    assert "--offline" in comments(printed)
    assert "history_id_seq" not in printed
    assert SEQUENCE.format("audit_event_id_seq") in printed
    assert (await terminal.type("grants", "--offline", "--output", "json", **away)).json["is_offline"]


async def test_an_unreachable_database_points_to_offline(terminal: Terminal) -> None:
    with pytest.raises(Unavailable, match="grants --offline"):
        await terminal.type("grants", ATTUNE__DATABASE__URL="postgresql://user@127.0.0.1:1/none")
