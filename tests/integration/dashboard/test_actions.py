"""Operating by forms: what will happen is said first, a reason is asked for, and what was done is on record."""

import re

import httpx
import pytest

from dlq_handler.database.engine import Database
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.errors import Unavailable
from dlq_handler.operations import audit_sql
from dlq_handler.safety import brake_sql
from dlq_handler.topology.consumers import Consumers
from tests.support.builders import a_dead_letter
from tests.support.ui import OPERATE, READ, TOKENS, a_ui_world, asking, put_on_record
from tests.support.views import INTAKE, NOW, a_brake, a_queue, a_view

RELEASE = "<code><span>dlq-handler</span> <span>brake</span> <span>release</span></code>"


def fields(page: str) -> dict[str, str]:
    """What a browser sends back of a form by itself."""
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page))


async def trip(store: Database) -> None:
    async with store.transaction() as tx:
        await brake_sql.trip(tx, by="one", explanation="too many", hold_seconds=0)


async def test_the_brake_is_released_with_a_reason_and_recorded(store: Database) -> None:
    await trip(store)
    view = a_view(intake=a_queue(INTAKE, ready=12_431, tags=("dlq-handler.one",)))
    async with asking(await a_ui_world(store, view=view)) as client:
        page = (await client.get("/brake/release")).text
        assert re.search(
            r"<button>Release brake, decide 12,431 dead letters \(as seen \d+ s ago\)</button>", page
        )
        assert "cannot be reopened" in page
        form = {**fields(page), "for_seconds": "600", "comment": "the workers are really gone"}
        done = await client.post("/brake/release", data=form)
    assert done.status_code == 200
    assert "The brake is released" in done.text
    assert 'href="/audit"' in done.text
    [operation] = await audit_sql.list_operations(store)
    assert (operation.username, operation.client, operation.comment) == (
        "anonymous@loopback",
        "browser",
        "the workers are really gone",
    )
    async with store.transaction() as tx:
        assert (await brake_sql.read_brake(tx)).state.tripped_at is None


async def test_the_button_says_how_many_letters_wait_now_and_not_at_the_last_look(store: Database) -> None:
    await trip(store)
    view = a_view(intake=a_queue(INTAKE, ready=0, tags=("dlq-handler.one",)))

    async def counted() -> Consumers:
        return Consumers(count=1, ready=10_931, unacknowledged=1_500)

    async def partly_counted() -> Consumers:
        return Consumers(count=2, ready=10_931, unacknowledged=None, own_unacknowledged=1_500)

    async def away() -> Consumers:
        raise Unavailable("count letters", "no broker")

    async with asking(await a_ui_world(store, view=view, count_intake=counted)) as client:
        page = (await client.get("/brake/release")).text
        assert "<button>Release brake, decide 12,431 dead letters</button>" in page
    async with asking(await a_ui_world(store, view=view, count_intake=partly_counted)) as client:
        page = (await client.get("/brake/release")).text
        assert "<button>Release brake, decide at least 12,431 dead letters</button>" in page
    async with asking(await a_ui_world(store, view=view, count_intake=away)) as client:
        page = (await client.get("/brake/release")).text
        assert re.search(r"decide 0 dead letters \(as seen \d+ s ago\)</button>", page)


async def test_commands_in_sentences_are_code_and_no_backticks(store: Database) -> None:
    await trip(store)
    view = a_view(brake=a_brake(tripped_at=NOW, tripped_by="<b>`</b>", explanation="many"))
    async with asking(await a_ui_world(store, view=view)) as client:
        assert f"until {RELEASE}." in (await client.get("/brake/release")).text
        # One alone is part of a name.
        assert "tripped by &lt;b&gt;`&lt;/b&gt;" in (await client.get("/")).text
    view = a_view(brake=a_brake(tripped_at=NOW, tripped_by="one", explanation="many"))
    async with asking(await a_ui_world(store, view=view)) as client:
        page = (await client.get("/")).text
    assert f"until {RELEASE}" in page
    assert "`" not in page


async def test_without_a_reason_nothing_is_done(store: Database) -> None:
    await trip(store)
    async with asking(await a_ui_world(store)) as client:
        form = {**fields((await client.get("/brake/release")).text), "for_seconds": "600", "comment": "  "}
        answer = await client.post("/brake/release", data=form)
    assert answer.status_code == 422
    assert "A reason is needed" in answer.text
    assert await audit_sql.list_operations(store) == []


async def test_a_form_that_shows_an_old_state_does_nothing(store: Database) -> None:
    await trip(store)
    async with asking(await a_ui_world(store)) as client:
        form = {**fields((await client.get("/brake/release")).text), "for_seconds": "600", "comment": "so"}
        async with store.transaction() as tx:
            await tx.run("UPDATE own.brake SET tripped_at = clock_timestamp()")
        answer = await client.post("/brake/release", data=form)
    assert answer.status_code == 409
    assert "Nothing was done" in answer.text
    assert await audit_sql.list_operations(store) == []


async def test_a_brake_that_is_not_tripped_has_no_button(store: Database) -> None:
    async with asking(await a_ui_world(store)) as client:
        page = (await client.get("/brake/release")).text
    assert "nothing to release" in page
    assert "<button>Release" not in page


async def test_who_may_only_read_sees_no_button_and_which_role_has_it(store: Database) -> None:
    await trip(store)
    async with asking(await a_ui_world(store, tokens=TOKENS), token=READ) as client:
        page = (await client.get("/brake/release")).text
        refused = await client.post("/brake/release", data={"comment": "so", "version": "x"})
    assert "needs the role operate. You are grace, with the role read." in page
    assert 'method="post"' not in page
    assert refused.status_code == 403
    assert await audit_sql.list_operations(store) == []


async def test_the_role_read_sees_which_role_is_needed_and_no_action(store: Database) -> None:
    [number] = await put_on_record(store, a_dead_letter(), outcome=Outcome.UNKNOWN_EXECUTION)
    async with store.transaction() as tx:
        [group] = await tx.rows("SELECT id FROM own.letter_group")
    pages = {
        "/": ("/brake/release", "Releasing it needs the role operate."),
        f"/letters/{number}": ("/reprocess", "Reprocessing this dead letter needs the role operate."),
        f"/groups/{group.id}": ("/reprocess", "Reprocessing 1 dead letter needs the role operate."),
    }
    view = a_view(brake=a_brake(tripped_at=NOW, tripped_by="one", explanation="many"))
    world = await a_ui_world(store, view=view, tokens=TOKENS)
    async with asking(world, token=READ) as reader, asking(world, token=OPERATE) as operator:
        for path, (offer, words) in pages.items():
            page = (await reader.get(path)).text
            assert (path, offer in page, words in page) == (path, False, True)
            page = (await operator.get(path)).text
            assert (path, offer in page, words in page) == (path, True, False)


@pytest.mark.parametrize(
    ("outcome", "is_prominent"), [(Outcome.UNKNOWN_EXECUTION, True), (Outcome.UNRELATED, False)]
)
async def test_reprocessing_is_a_button_only_where_it_can_help(
    store: Database, outcome: Outcome, is_prominent: bool
) -> None:
    """OS11 of the operating review."""
    [number] = await put_on_record(store, a_dead_letter(), outcome=outcome)
    async with store.transaction() as tx:
        [group] = await tx.rows("SELECT id FROM own.letter_group")
    async with asking(await a_ui_world(store)) as client:
        for path in (f"/letters/{number}", f"/groups/{group.id}"):
            page = (await client.get(path)).text
            assert f'href="{path}/reprocess"' in page
            assert (path, f'class="button" href="{path}/reprocess"' in page) == (path, is_prominent)


async def test_a_kept_letter_is_decided_again(store: Database) -> None:
    [number] = await put_on_record(store, a_dead_letter(), outcome=Outcome.UNKNOWN_EXECUTION)
    async with asking(await a_ui_world(store)) as client:
        page = (await client.get(f"/letters/{number}/reprocess")).text
        assert f"<button>Reprocess letter {number}</button>" in page
        answer = await client.post(
            f"/letters/{number}/reprocess", data={**fields(page), "comment": "its row is back"}
        )
    assert answer.status_code == 200
    assert "1 letter queued for reprocessing" in answer.text
    [operation] = await audit_sql.list_operations(store)
    assert operation.target == f"letter {number}"


async def test_the_kept_letters_of_a_group_are_counted_before_they_are_decided_again(store: Database) -> None:
    letters = [a_dead_letter(key=f"k{number}") for number in range(3)]
    await put_on_record(store, *letters, outcome=Outcome.UNKNOWN_EXECUTION)
    async with store.transaction() as tx:
        [row] = await tx.rows("SELECT id FROM own.letter_group")
    async with asking(await a_ui_world(store)) as client:
        page = (await client.get(f"/groups/{row.id}/reprocess")).text
        assert "<button>Reprocess 3 letters</button>" in page
        answer = await client.post(
            f"/groups/{row.id}/reprocess", data={**fields(page), "comment": "restored"}
        )
    assert "3 letters queued for reprocessing" in answer.text


async def test_a_very_large_group_says_how_much_of_it_one_act_reaches(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlq_handler.dead_letters.reprocess_sql.MOST_QUEUED", 2)
    letters = [a_dead_letter(key=f"k{number}") for number in range(5)]
    await put_on_record(store, *letters, outcome=Outcome.UNKNOWN_EXECUTION)
    async with store.transaction() as tx:
        [row] = await tx.rows("SELECT id FROM own.letter_group")
    async with asking(await a_ui_world(store)) as client:
        assert "Reprocess 2+ dead letters" in (await client.get(f"/groups/{row.id}")).text
        page = (await client.get(f"/groups/{row.id}/reprocess")).text
        assert "2+ letters of this group can be reprocessed: 2 at a time" in page
        answer = await client.post(
            f"/groups/{row.id}/reprocess", data={**fields(page), "comment": "restored"}
        )
    assert "2 letters queued for reprocessing" in answer.text
    assert "Left in this group: 2+." in answer.text


async def test_a_settled_group_only_says_so(store: Database) -> None:
    await put_on_record(store, a_dead_letter())
    async with store.transaction() as tx:
        [row] = await tx.rows("SELECT id FROM own.letter_group")
    async with asking(await a_ui_world(store)) as client:
        page = (await client.get(f"/groups/{row.id}/reprocess")).text
    assert "No letter of this group can be reprocessed." in page
    assert "0 letters" not in page
    assert "Each is decided" not in page


async def test_a_raw_body_is_for_operators_and_each_reading_is_recorded(store: Database) -> None:
    body = b'{"password": "hunter2"}'
    [number] = await put_on_record(store, a_dead_letter(body=body, body_size=len(body)))
    async with asking(await a_ui_world(store)) as client:
        form = fields((await client.get(f"/letters/{number}")).text)
        assert "hunter2" in (await client.post(f"/letters/{number}/body", data=form)).text
    async with asking(await a_ui_world(store, tokens=TOKENS), token=READ) as client:
        assert "for the role operate" in (await client.get(f"/letters/{number}")).text
        assert (await client.post(f"/letters/{number}/body")).status_code == 403
    [operation] = await audit_sql.list_operations(store)
    assert operation.action == "letter.body_read"


async def test_who_logged_in_can_log_out_on_every_page(store: Database) -> None:
    async with asking(await a_ui_world(store, tokens=TOKENS)) as client:
        await client.post("/login", data={"token": READ})
        page = (await client.get("/letters")).text
        assert 'action="/logout"' in page
        assert (await client.post("/logout", data=fields(page))).headers["location"] == "/login"
        assert (await client.get("/letters")).status_code == 303
        assert 'action="/logout"' not in (await client.get("/login")).text
    async with asking(await a_ui_world(store)) as client:
        assert 'action="/logout"' not in (await client.get("/letters")).text


async def test_the_form_for_a_token_shows_nothing_else(store: Database) -> None:
    async with asking(await a_ui_world(store, tokens=TOKENS)) as client:
        page = (await client.get("/login", params={"next": "https://elsewhere.example/"})).text
        assert 'name="next" value="/"' in page
        assert "All is well" not in page
        refused: httpx.Response = await client.get("/login?refused=1")
        assert "token is not valid" in refused.text


async def test_a_letter_that_cannot_be_decided_again_says_why_and_no_consequence(store: Database) -> None:
    [unreadable] = await put_on_record(store, a_dead_letter(), outcome=Outcome.UNREADABLE)
    [settled] = await put_on_record(store, a_dead_letter(key="k2"))
    async with asking(await a_ui_world(store)) as client:
        for number, said in (
            (unreadable, "It cannot be reprocessed: what could not be read then cannot be read now."),
            (settled, "Failed is resolved: it cannot be reprocessed."),
        ):
            page = (await client.get(f"/letters/{number}/reprocess")).text
            assert said in page
            assert "Each is decided" not in page
            assert "<textarea" not in page
            letter = (await client.get(f"/letters/{number}")).text
            assert "/reprocess" not in letter
            form = {"csrf": fields(letter)["csrf"], "comment": "so"}
            assert (await client.post(f"/letters/{number}/reprocess", data=form)).status_code == 409
        async with store.transaction() as tx:
            row = await tx.row("SELECT group_id FROM own.letter WHERE id = :id", id=unreadable)
        assert row is not None
        for page in (f"/letters/{unreadable}/reprocess", f"/groups/{row.group_id}/reprocess"):
            assert "settled" not in (await client.get(page)).text
