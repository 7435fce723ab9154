"""Operations from the terminal: with a comment, on the state that was read, and recorded in the audit."""

import asyncio
import re

import pytest

from dlq_handler.database.engine import Database
from dlq_handler.operations.operation import Action
from tests.integration.cli.conftest import Terminal
from tests.support.host_tables import Host
from tests.support.terminal_window import in_a_terminal

QUEUE_ALL = "UPDATE dlq_handler.letter SET next_attempt_at = now()"


async def audit(terminal: Terminal) -> list[tuple[str, str, str]]:
    rows = (await terminal.type("audit", "list")).rows
    assert all("@" in row["USER"] and row["CLIENT"] == "cli" for row in rows)
    return [(row["ACTION"], row["COMMENT"], row["RESULT"]) for row in rows]


async def test_without_a_reason_nothing_is_done(terminal: Terminal, store: Database) -> None:
    for act in ("brake release", "letters reprocess --all"):
        for words in (act.split(), [*act.split(), "--comment", " "]):
            typed = await terminal.type(*words)
            assert typed.code == 2, words
            assert "--comment" in typed.err
    nothing = await terminal.type("audit", "list")
    assert nothing.rows == []


async def test_a_release_is_on_record_and_one_of_a_brake_that_changed_is_refused(
    terminal: Terminal, store: Database
) -> None:
    seen = (await terminal.type("brake", "status", "--output", "json")).json["version"]
    async with store.transaction() as tx:
        await tx.run("UPDATE own.brake SET tripped_at = now(), tripped_by = 'one', explanation = 'many'")

    late = await terminal.type("brake", "release", "--comment", "real", "--if-version", seen)
    assert (late.code, "has changed" in late.err) == (1, True)
    assert await audit(terminal) == []
    released = await terminal.type("brake", "release", "--comment", "INC-7, they are gone")

    assert (released.code, released.err) == (0, "")
    assert await audit(terminal) == [("brake.release", "INC-7, they are gone", "no limit for 10 min")]
    assert (await terminal.type("brake", "status")).code == 0
    for filtered in (
        "--action letter.body_read",
        "--username user@nowhere",
        "--since 2099-01-01",
        "--before 1",
    ):
        other = await terminal.type("audit", "list", *filtered.split())
        assert (other.code, other.rows) == (0, [])
    mistyped = await terminal.type("audit", "list", "--action", "brake.relaese", COLUMNS="200")
    assert mistyped.code == 2
    assert all(action in mistyped.err for action in Action)


async def test_releasing_a_brake_that_is_not_tripped_is_warned_about_first(
    terminal: Terminal, store: Database
) -> None:
    release = ("brake", "release", "--comment", "real")
    at_ease = await terminal.type(*release, "--for", "2m")
    again = await terminal.type(*release, "--for", "3m")
    back = await terminal.type(*release, "--for", "0s")
    without = await terminal.type(*release, ATTUNE__DLQ_HANDLER__BRAKE__MAX_DECISIONS_PER_MINUTE="0")

    assert at_ease.err == "warning: the brake is not tripped; this lifts the limit for 2 min\n"
    assert re.search(
        r"warning: released by \S+@\S+: no limit until 2.*Z; this release replaces it\n", again.err
    )
    assert (back.code, back.err) == (0, "")
    assert "no limit is set" in without.err
    assert len(await audit(terminal)) == 4, "it is done all the same"
    unsaid = await terminal.type("brake", "release")
    assert unsaid.err.startswith("warning: released by "), "before a reason is asked for"


async def test_kept_letters_are_reprocessed_and_those_that_cannot_be_are_named(
    terminal: Terminal, letters: list[int], host: Host
) -> None:
    await host.session.execute(
        "UPDATE dlq_handler.letter SET outcome = 'unknown_execution' WHERE id = $1", letters[0]
    )
    mixed = await terminal.type(
        "letters", "reprocess", str(letters[0]), str(letters[1]), "--comment", "it is there"
    )

    assert mixed.code == 1
    assert f"letter {letters[1]} was not decided" in mixed.err
    assert [(row["ID"], row["BEFORE"]) for row in mixed.rows] == [(str(letters[0]), "unknown_execution")]
    assert mixed.err.endswith("\n1 reprocessed, 1 changed, 1 not decided\n")
    [(action, comment, _)] = await audit(terminal)
    assert (action, comment) == ("letters.reprocess", "it is there")
    nothing = await terminal.type("letters", "reprocess", "--outcome", "update_failed", "--comment", "again")
    assert (nothing.code, nothing.rows, nothing.err) == (0, [], "no dead letter to reprocess\n")
    assert len(await audit(terminal)) == 1, "nothing was done, so nothing is on record"


async def test_a_terminal_lists_only_what_deciding_again_has_changed_and_a_pipe_all(
    terminal: Terminal, letters: list[int], host: Host
) -> None:
    """One execution is there by now, the other is not."""
    await host.session.execute(
        "UPDATE dlq_handler.letter SET outcome = 'unknown_execution', explanation = 'as it was',"
        " execution_id = CASE id WHEN $2 THEN 999999 ELSE execution_id END WHERE id IN ($1, $2)",
        letters[0],
        letters[1],
    )
    again = ("letters", "reprocess", "--all", "--comment", "they are there")
    async with in_a_terminal(*again, environment=terminal.environment) as window:
        assert await window.ended() == 0
        await window.shows("2 reprocessed, 1 changed")
    assert "already_terminal" in window.text
    assert "999999" not in window.text
    async with in_a_terminal(*again, environment=terminal.environment) as window:
        await window.shows("1 reprocessed, 0 changed")
    assert "OUTCOME" not in window.text
    in_a_pipe = await terminal.type(*again)

    assert [row["EXECUTION"] for row in in_a_pipe.rows] == ["999999"]
    assert in_a_pipe.err == "1 reprocessed, 0 changed\n"
    as_json = await terminal.type(*again, "--output", "json")
    assert ([one["outcome"] for one in as_json.json], as_json.err) == (["unknown_execution"], in_a_pipe.err)


async def test_what_contradicts_itself_is_refused(terminal: Terminal) -> None:
    for words in (
        "1 --group abc",
        "--group abc --outcome unrelated",
        "--if-version abc",
        "--outcome failed",
        "1 --all",
    ):
        typed = await terminal.type("letters", "reprocess", *words.split(), "--comment", "x")
        assert typed.code == 2, words


async def test_all_dead_letters_are_processed_again_only_when_that_is_said(
    terminal: Terminal, letters: list[int], host: Host
) -> None:
    """`--comment expired` looks like a filter."""
    await host.session.execute("UPDATE dlq_handler.letter SET outcome = 'unknown_execution'")
    typed = await terminal.type("letters", "reprocess", "--comment", "expired")

    assert (typed.code, "Give ids, --group, --outcome or --all" in " ".join(typed.err.split())) == (2, True)
    assert {row["outcome"] for row in await host.letters()} == {"unknown_execution"}
    assert await audit(terminal) == []


async def test_a_group_is_refused_if_it_has_changed_since_its_version_was_printed(
    terminal: Terminal, letters: list[int], host: Host
) -> None:
    await host.session.execute("UPDATE dlq_handler.letter SET outcome = 'unknown_execution'")
    [group, *_] = (await terminal.type("letters", "groups", "--output", "json")).json
    again = ("letters", "reprocess", "--group", group["id"], "--comment", "x", "--if-version")
    late = await terminal.type(*again, "0" * len(group["version"]))
    assert (late.code, "has changed" in late.err) == (1, True)
    done = await terminal.type(*again, group["version"])
    assert done.code == 0, done.err


async def test_a_group_is_decided_again_by_its_name(
    terminal: Terminal, letters: list[int], host: Host
) -> None:
    group = (await host.letters())[0]["group_id"]
    await host.session.execute(
        "UPDATE dlq_handler.letter SET outcome = 'unknown_execution' WHERE group_id = $1", group
    )
    typed = await terminal.type("letters", "reprocess", "--group", group, "--comment", "they exist by now")

    assert typed.code == 0, typed.err
    assert sorted(int(row["ID"]) for row in typed.rows) == letters[:3]
    mistyped = await terminal.type("letters", "reprocess", "--group", "0123456789", "--comment", "again")
    assert (mistyped.code, mistyped.out) == (1, "")
    assert "No such record. Records are kept for 31 d; it may have been deleted." in mistyped.err


async def test_letters_beyond_the_limit_of_one_operation_are_counted_and_follow_with_the_next(
    terminal: Terminal, letters: list[int], host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlq_handler.dead_letters.reprocess_sql.MOST_QUEUED", 2)
    group = (await host.letters())[0]["group_id"]
    await host.session.execute(
        "UPDATE dlq_handler.letter SET outcome = 'unknown_execution' WHERE group_id = $1", group
    )
    for asked, left in ((("--group", group), "1"), (("--all",), "some")):
        first = await terminal.type("letters", "reprocess", *asked, "--comment", "they exist by now")
        assert (first.code, len(first.rows)) == (1, 2)
        assert f"left: {left}, too many for one operation" in first.err
        await host.session.execute(
            "UPDATE dlq_handler.letter SET outcome = 'unknown_execution', decided_at = received_at"
            " WHERE group_id = $1",
            group,
        )


@pytest.mark.parametrize(
    "act", [("letters", "reprocess", "{letter}"), ("letters", "reprocess", "--group", "{group}")]
)
async def test_what_changes_between_the_look_and_the_act_is_not_acted_upon(
    terminal: Terminal,
    letters: list[int],
    host: Host,
    monkeypatch: pytest.MonkeyPatch,
    *,
    act: tuple[str, ...],
) -> None:
    """Another user acts while the comment is typed."""
    await host.session.execute(
        "UPDATE dlq_handler.letter SET outcome = 'unrelated' WHERE id = $1", letters[0]
    )
    group = (await host.letters())[0]["group_id"]
    loop = asyncio.get_running_loop()

    def typed_slowly(_given: str | None) -> str:
        asyncio.run_coroutine_threadsafe(host.session.execute(QUEUE_ALL), loop).result(timeout=30)
        return "it is real"

    monkeypatch.setattr("dlq_handler.cli.letters_reprocess.comment_or_ask", typed_slowly)
    refused = await terminal.type(*(word.format(letter=letters[0], group=group) for word in act))

    assert (refused.code, "has changed" in refused.err) == (1, True), refused.err
    assert (await terminal.type("audit", "list")).rows == []


async def test_a_terminal_asks_for_the_comment_and_shows_how_long_ago(
    terminal: Terminal, store: Database
) -> None:
    async with in_a_terminal("brake", "release", environment=terminal.environment) as window:
        await window.shows("Comment")
        window.type("they are gone\n")
        assert await window.ended() == 0
        await window.shows("Z (0 s ago)")
    [row] = (await terminal.type("audit", "list")).rows

    assert (row["ACTION"], row["COMMENT"]) == ("brake.release", "they are gone")
