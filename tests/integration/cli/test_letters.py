"""`letters list|groups|export|show`: chosen by every filter, whole in a pipe, and nothing secret in it."""

import csv
import io
import json

import pytest

from dlq_handler.database.engine import Database
from dlq_handler.dead_letters.records_sql import delete_resolved
from dlq_handler.masking import MASK
from tests.integration.cli.conftest import Terminal
from tests.support.builders import a_dead_letter
from tests.support.host_tables import Host
from tests.support.ui import put_on_record

NO_RECORD = "No such record. Records are kept for {}; it may have been deleted."

CHOSEN = {
    "": [4, 3, 2, 1, 0],
    "--limit 2": [4, 3],
    "--worker 7": [2, 1, 0],
    "--worker 8": [3],
    "--worker 9": [],
    "--worker worker-python": [2, 1, 0],
    "--reason rejected": [3],
    "--category unreadable": [4],
    "--outcome failed --worker 8": [3],
    "--action core.http": [3],
    "--search odd": [4],
    "--since 1h": [4, 3, 2, 1, 0],
    "--until 1h": [],
    "--since 2099-01-01": [],
    "--before {3}": [2, 1, 0],
    "--group {group}": [2, 1, 0],
}


async def add_worker(host: Host, number: int, name: str) -> None:
    await host.session.execute(
        "INSERT INTO worker (id, name, worker_type, worker_role) VALUES ($1, $2, 'local', 'action')",
        number,
        name,
    )


async def test_letters_are_chosen_by_every_filter(terminal: Terminal, letters: list[int], host: Host) -> None:
    """Worker 8 is deregistered and has a letter, worker 9 is registered and has none."""
    await add_worker(host, 7, "worker-python")
    await add_worker(host, 9, "worker-idle")
    group = (await host.letters())[0]["group_id"]
    for options, places in CHOSEN.items():
        typed = await terminal.type("letters", "list", *options.format(*letters, group=group).split())

        assert typed.code == 0, typed.err
        assert [int(row["ID"]) for row in typed.rows] == [letters[place] for place in places], options


async def test_an_unknown_name_is_an_error_and_no_empty_list(
    terminal: Terminal, letters: list[int], host: Host
) -> None:
    await add_worker(host, 7, "worker-python")
    await add_worker(host, 8, "worker-node")
    for command in ("list", "export"):
        no_worker = await terminal.type("letters", command, "--worker", "worker-pyhton")
        assert (no_worker.code, no_worker.out) == (1, "")
        assert (
            "No worker has the name worker-pyhton. Registered: worker-node, worker-python." in no_worker.err
        )
        no_id = await terminal.type("letters", command, "--worker", "999")
        assert (no_id.code, no_id.out) == (1, "")
        assert f"{NO_RECORD.format('24 h')} Worker 999 is not registered" in no_id.err
        no_group = await terminal.type("letters", command, "--group", "0123456789")
        assert (no_group.code, no_group.out) == (1, "")
        assert f"{NO_RECORD.format('31 d')} `dlq-handler letters groups" in no_group.err
    assert (await terminal.type("letters", "list", "--worker", "0")).code == 2
    assert (await terminal.type("letters", "list", "--worker", "9" * 19)).code == 2


async def test_a_window_in_which_nothing_can_be_is_typed_wrongly(
    terminal: Terminal, letters: list[int]
) -> None:
    for command in ("list", "export", "groups"):
        for window in (
            "--since 1h --until 2h",
            "--since 1h --until 60m",
            "--until 2026-01-01 --since 2026-01-02",
        ):
            typed = await terminal.type("letters", command, *window.split())
            assert (typed.code, typed.out) == (2, ""), (command, window)
            assert "--since" in typed.err
        assert (await terminal.type("letters", command, "--since", "2h", "--until", "1h")).code == 0


async def test_a_page_that_is_not_the_last_says_how_to_go_on(terminal: Terminal, letters: list[int]) -> None:
    typed = await terminal.type("letters", "list", "--limit", "2")

    assert f"add --before {letters[3]}" in typed.err
    assert typed.rows[1]["WORKER"] == "8"


async def test_groups_are_the_largest_first_with_a_name_that_says_whose(
    terminal: Terminal, letters: list[int], host: Host
) -> None:
    await add_worker(host, 7, "worker-python")
    typed = await terminal.type("letters", "groups", "--since", "1h")
    first = typed.rows[0]

    assert (first["TITLE"], first["LETTERS"], first["FAILED BY LETTER"]) == (
        "Not taken in time: worker-python",
        "3",
        "3",
    )
    assert first["QUEUE"] == "worker.7.executions"
    assert {row["LETTERS"] for row in typed.rows[1:]} == {"1"}
    [all_of_it, *_] = (await terminal.type("letters", "groups", "--output", "json")).json
    assert (all_of_it["id"], all_of_it["title"]) == (first["GROUP"], first["TITLE"])
    few = await terminal.type("letters", "groups", "--limit", "1")
    assert "there are 2 more" in few.err


async def test_an_export_goes_page_by_page_and_has_every_letter_once(
    terminal: Terminal, letters: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlq_handler.cli.letters.PAGE", 2)
    typed = await terminal.type("letters", "export")
    lines = [json.loads(line) for line in typed.out.splitlines()]

    assert [line["id"] for line in lines] == letters[::-1]
    assert all("body" not in line and "headers" not in line for line in lines)
    assert typed.err == "5 letter(s)\n"
    chosen = await terminal.type("letters", "export", "--worker", "7", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(chosen.out)))
    assert [int(row["id"]) for row in rows] == letters[2::-1]
    assert rows[0]["received_at"].endswith("Z")


async def test_no_cell_of_a_csv_is_a_formula(terminal: Terminal, store: Database) -> None:
    """Names and bodies are the senders': a spreadsheet would run what they wrote."""
    formulas = ["=1+1", "+1", "-1+cmd|' /C calc'!A0", "@SUM(1)", "\t=1", "\r=1"]
    await put_on_record(
        store, *(a_dead_letter(key=f"k{i}", action_ref=text) for i, text in enumerate(formulas))
    )
    typed = await terminal.type("letters", "export", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(typed.out)))
    assert len(rows) == len(formulas)
    for row in rows:
        assert not [cell for cell in row.values() if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    assert [row["action_ref"] for row in rows[::-1]][:4] == [f"'{text}" for text in formulas[:4]]


async def test_bodies_are_exported_only_on_request_and_masked(terminal: Terminal, letters: list[int]) -> None:
    for format_ in ("jsonl", "csv"):
        typed = await terminal.type(
            "letters", "export", "--bodies", "--reason", "rejected", "--format", format_
        )
        assert typed.code == 0, typed.err
        assert "S3CRET" not in typed.out
        assert MASK in typed.out
        assert "x-first-death-reason" in typed.out


async def test_a_letter_is_shown_without_its_body_and_with_masked_headers(
    terminal: Terminal, letters: list[int]
) -> None:
    shown = (await terminal.type("letters", "show", str(letters[3]), "--output", "json")).json

    assert "body" not in shown
    assert shown["headers"] == {"authorization": MASK, "x-first-death-reason": "rejected"}
    assert len(shown["version"]) == 12


async def test_a_letter_without_a_record_is_answered_with_the_configured_retention(
    terminal: Terminal, letters: list[int], store: Database
) -> None:
    await delete_resolved(store, older_than_seconds=-1)
    ttl = "ATTUNE__MESSAGE_QUEUE__RABBITMQ__DEAD_LETTER__TTL_MS"
    for letter_id in (letters[0], 999_999):
        typed = await terminal.type("letters", "show", str(letter_id), **{ttl: "259200000"})
        assert (typed.code, typed.out) == (1, "")
        assert NO_RECORD.format("3 d") in typed.err


async def test_an_execution_without_a_record_is_an_error(
    terminal: Terminal, letters: list[int], store: Database, host: Host
) -> None:
    [number] = [row["execution_id"] for row in await host.letters() if row["id"] == letters[0]]
    await delete_resolved(store, older_than_seconds=-1)
    assert (await terminal.type("executions", "explain", str(number))).code == 0, "the host has it"
    await host.session.execute("DELETE FROM execution WHERE id = $1", number)
    async with store.transaction() as tx:
        await tx.run("DELETE FROM own.outbox")
    for execution_id in (number, 999_999):
        typed = await terminal.type("executions", "explain", str(execution_id))
        assert (typed.code, typed.out) == (1, "")
        assert f"No record of execution {execution_id}. Records are kept for 24 h" in typed.err
