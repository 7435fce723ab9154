"""`top`: one snapshot in a pipe, a screen of its own on a terminal; and who is asked on a terminal."""

from dataclasses import replace

from dlq_handler.domain.diagnose import diagnose
from dlq_handler.domain.view import BrokerSeen
from dlq_handler.sandbox.servers.ports import free_port
from dlq_handler.store import diagnoses as diagnoses_store
from dlq_handler.store.engine import Database
from tests.integration.store.host import Host
from tests.integration.terminal.conftest import Terminal
from tests.support.eventually import eventually
from tests.support.terminal_window import in_a_terminal
from tests.support.views import NOW, a_view, ago


async def test_in_a_pipe_it_prints_one_snapshot_of_all_and_nothing_is_cut(
    terminal: Terminal, letters: list[int], host: Host
) -> None:
    await host.session.execute(
        "INSERT INTO worker (id, name, worker_type, worker_role, last_heartbeat)"
        " VALUES (7, 'worker-python', 'local', 'action', now() - interval '1 h')"
    )
    typed = await terminal.type("top")
    diagnoses, workers, groups = [
        [line.split("\t") for line in part.splitlines()] for part in typed.out.split("\n\n")
    ]

    assert typed.code == 0, typed.err
    assert diagnoses[0][:3] == ["STATE", "PART", "KIND"]
    assert diagnoses[1][:3] == ["problem", "broker", "broker"], "the worst first"
    [worker] = workers[1:]
    assert worker[1:3] == ["worker-python", "unavailable"]
    assert worker[4:7] == ["?", "?", "?"], "the broker does not answer"
    assert groups[1][1:2] + groups[1][5:7] == ["Not taken in time: worker-python", "3", "3"]
    told = (await terminal.type("top", "--output", "json")).json
    assert (told["conclusion"], told["workers"]["unavailable"]) == ("problem", 1)
    assert sum(minute["letters"] for minute in told["letters_per_minute"]) == 5


async def test_since_when_is_told_by_what_a_sidecar_put_on_record(
    terminal: Terminal, store: Database
) -> None:
    unrecorded = (await terminal.type("top")).out
    [seen] = [one for one in diagnose(a_view(broker=BrokerSeen(trouble="away"))) if one.kind == "broker"]
    async with store.transaction() as tx:
        await diagnoses_store.record_change(tx, [replace(seen, since=ago(60))], at=NOW)

    assert unrecorded.splitlines()[1].split("\t")[2:4] == ["broker", "-"], "nobody knows"
    for command in ("top", "status"):
        line = (await terminal.type(command)).out.splitlines()[1]
        assert line.split("\t")[2:4] == ["broker", "2026-03-01T02:59:00Z"]


async def test_with_no_server_it_says_what_is_not_known(terminal: Terminal) -> None:
    nowhere = f"postgresql://127.0.0.1:{free_port()}/attune"
    typed = await terminal.type("top", ATTUNE__DATABASE__URL=nowhere)

    assert typed.code == 0
    assert typed.out.splitlines()[1].startswith("problem\tdatabase\tdatabase\t")
    assert "letters: database: " in typed.err


async def test_without_a_pause_it_asks_nobody_on_a_terminal_and_in_a_pipe(terminal: Terminal) -> None:
    typed = await terminal.type("top", "--every", "0s")
    async with in_a_terminal("top", "--every", "0s", environment=terminal.environment) as window:
        assert await window.ended() == 2

    assert (typed.code, typed.out) == (2, "")
    assert "--every" in typed.err


async def test_on_a_terminal_it_looks_again_and_again_until_ctrl_c(
    terminal: Terminal, letters: list[int], host: Host
) -> None:
    async with in_a_terminal("top", "--every", "1s", environment=terminal.environment) as window:
        await window.shows("✕ problem", "broker: connect to", "dead letters a minute, last hour: 5 in all")
        await host.session.execute(
            "INSERT INTO worker (id, name, worker_type, worker_role, last_heartbeat)"
            " VALUES (9, 'worker-late', 'local', 'action', now() - interval '1 h')"
        )
        await window.shows("worker-late")
        window.interrupt()
        assert await window.ended() == 0
        await eventually(lambda: "\x1b[?1049l" in window.raw, timeout=60)

    assert "Traceback" not in window.text


async def test_a_person_is_asked_for_the_reason_and_told_how_long_ago(
    terminal: Terminal, store: Database
) -> None:
    async with in_a_terminal("brake", "release", environment=terminal.environment) as window:
        await window.shows("Why? (for the audit)")
        window.type("they are gone\n")
        assert await window.ended() == 0
        await window.shows("Z (0 s ago)")
    [row] = (await terminal.type("audit", "list")).rows

    assert (row["WHAT"], row["REASON"]) == ("brake.release", "they are gone")
