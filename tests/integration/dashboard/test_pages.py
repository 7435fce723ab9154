"""The pages on a real database: what is on record is shown, what is not is said."""

import html
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import httpx

from dlq_handler.clock import monotonic_seconds
from dlq_handler.dashboard import words
from dlq_handler.database.engine import Database
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.letter import ParseProblem
from dlq_handler.dead_letters.records_sql import delete_resolved
from dlq_handler.diagnosis import diagnoses_sql
from dlq_handler.diagnosis.diagnoser import Observed
from dlq_handler.diagnosis.diagnosis import Health
from dlq_handler.diagnosis.view import BrokerFact, Unknown
from dlq_handler.history import history_sql
from dlq_handler.web.world import UiWorld
from tests.support.builders import a_dead_letter, a_death
from tests.support.ui import a_ui_world, asking, put_on_record
from tests.support.views import a_view

PAGES = (
    "/",
    "/?span=24h",
    "/?chart=table",
    "/letters",
    "/groups",
    "/workers",
    "/workers/7",
    "/queues",
    "/flows",
    "/topology",
    "/audit",
)

HOSTILE = "<script>alert(1)</script>"
NO_RECORD = "No such record. Records are kept for {}; it may have been deleted."


async def test_every_page_is_there_on_an_empty_record(browser: httpx.AsyncClient) -> None:
    for path in PAGES:
        answer = await browser.get(path)
        assert (path, answer.status_code, answer.text.count("<h1")) == (path, 200, 1)


async def test_before_the_first_look_nothing_is_green(store: Database) -> None:
    async with asking(await a_ui_world(store, has_looked=False)) as client:
        page = (await client.get("/")).text
        assert "Unknown: no observation has been made yet." in page
        assert "✓" not in page
        assert "Unknown: no observation has been made yet." in (await client.get("/workers")).text


class Starting:
    """A diagnoser whose first observation comes a moment after it is first asked for."""

    def __init__(self, seen: Observed | None) -> None:
        self._seen = seen
        self._ready_at: float | None = None

    @property
    def latest(self) -> Observed | None:
        self._ready_at = self._ready_at or monotonic_seconds() + 0.5
        return self._seen if monotonic_seconds() >= self._ready_at else None


async def test_the_first_page_waits_for_the_view_that_is_being_read(world: UiWorld) -> None:
    starting: Any = Starting(world.diagnoser.latest)
    async with asking(replace(world, diagnoser=starting)) as client:
        assert "<title>All is well.</title>" in (await client.get("/")).text


async def test_a_record_without_letters_says_how_to_see_one(browser: httpx.AsyncClient) -> None:
    assert "Waiting for the first letter." in (await browser.get("/")).text
    assert "dlq-handler canary run" in (await browser.get("/letters")).text


async def test_an_empty_list_says_that_retention_deleted_what_came(
    browser: httpx.AsyncClient, store: Database
) -> None:
    await put_on_record(store, a_dead_letter())
    await delete_resolved(store, older_than_seconds=-1)
    page = (await browser.get("/letters")).text
    assert "Waiting for the first letter" not in page
    assert "dlq-handler canary run" not in page
    assert re.search(
        r"No dead letter is on record\. The last one arrived on [-0-9]+ [:0-9]+Z, \d+ s ago\. "
        r"Resolved ones are kept for 24 h, others for 30 d\.",
        page,
    )
    async with store.transaction() as tx:
        await tx.run("DELETE FROM own.letter_group")
        await tx.run("DELETE FROM own.letter_minute")
    assert "No dead letter is on record. Resolved ones" in (await browser.get("/letters")).text
    now = (await browser.get("/")).text
    assert "Waiting for the first letter" not in now
    assert "Of earlier ones none is remembered that counts." in now


async def test_the_title_is_the_diagnosis(browser: httpx.AsyncClient, world: UiWorld) -> None:
    assert "<title>All is well.</title>" in (await browser.get("/")).text


async def test_letters_are_listed_filtered_and_paged(browser: httpx.AsyncClient, store: Database) -> None:
    letters = [a_dead_letter(key=f"k{number}", execution_id=number) for number in range(1, 61)]
    ids = await put_on_record(store, *letters)
    first = (await browser.get("/letters")).text
    assert first.count("data-row") == 50
    assert f'href="/letters?before={ids[10]}"' in first
    second = (await browser.get(f"/letters?before={ids[10]}")).text
    assert second.count("data-row") == 10
    [newer] = re.findall('href="(/letters[?]after=[0-9]+)"', second)
    assert (await browser.get(newer)).text.count("data-row") == 50
    assert "No letter matches" in (await browser.get("/letters?reason=maxlen")).text
    assert (await browser.get("/letters?search=7")).text.count("data-row") == 1
    assert (await browser.get("/letters?cause=nonsense")).status_code == 422


async def test_new_letters_wait_behind_a_link_and_no_row_moves(
    browser: httpx.AsyncClient, store: Database
) -> None:
    [first] = await put_on_record(store, a_dead_letter())
    assert f'data-seen="{first}"' in (await browser.get("/letters")).text
    await put_on_record(store, *(a_dead_letter(key=f"new{number}") for number in range(3)))
    news = (await browser.get(f"/letters?fragment=new&seen={first}")).text
    assert "3 new, show" in news
    assert "<table" not in news


async def test_a_letter_is_shown_with_its_way_masked(browser: httpx.AsyncClient, store: Database) -> None:
    body = b'{"password": "hunter2", "url": "amqp://u:p@host/"}'
    [number] = await put_on_record(store, a_dead_letter(body=body, body_size=len(body)))
    page = (await browser.get(f"/letters/{number}")).text
    assert "Expired after 5 min in worker.7.executions; execution 1 marked failed." in page
    assert "hunter2" not in page
    assert "u:p@" not in page
    assert page.count("<li class=") == 5


async def test_a_letter_or_execution_that_retention_deleted_is_no_record(
    browser: httpx.AsyncClient, store: Database
) -> None:
    [number] = await put_on_record(store, a_dead_letter(execution_id=4711))
    assert (await browser.get(f"/letters/{number}")).status_code == 200
    await delete_resolved(store, older_than_seconds=-1)
    for page in (
        f"/letters/{number}",
        f"/letters/{number}/reprocess",
        f"/letters/{number + 1}",
        "/executions/4711",
        "/api/v1/executions/4711",
    ):
        missing = await browser.get(page)
        assert (page, missing.status_code) == (page, 404)
        assert NO_RECORD.format("24 h") in missing.text


async def test_a_worker_that_is_not_registered_says_since_when_as_long_as_it_is_on_record(
    browser: httpx.AsyncClient, store: Database
) -> None:
    async with store.transaction() as tx:
        await tx.run(
            """
            INSERT INTO own.worker_change (worker_id, name, at, availability)
            VALUES (70, 'worker-old', now() - interval '5 days', 'available'),
                   (70, 'worker-old', now() - interval '3 days', NULL)
            """
        )
    left = datetime.now(UTC) - timedelta(days=3)
    page = await browser.get("/workers/70")
    assert page.status_code == 200
    assert f"It has not been registered since {left:%Y-%m-%d}" in page.text
    assert "worker-old" in page.text
    assert re.search(rf'href="/\?at={left:%Y-%m-%d}T[^"]+Z"', page.text)
    await history_sql.delete_old(store, older_than_seconds=86_400)
    for path in ("/workers/70", "/workers/71"):
        missing = await browser.get(path)
        assert (path, missing.status_code) == (path, 404)
        assert NO_RECORD.format("7 d") in missing.text


async def test_a_group_without_a_record_is_named_as_such_on_every_page(
    browser: httpx.AsyncClient,
) -> None:
    for page in ("/groups/0123456789", "/groups/0123456789/reprocess"):
        missing = await browser.get(page)
        assert missing.status_code == 404
        assert NO_RECORD.format("31 d") in missing.text


async def test_a_group_has_a_stable_page_with_its_letters(
    browser: httpx.AsyncClient, store: Database
) -> None:
    await put_on_record(store, a_dead_letter())
    async with store.transaction() as tx:
        [row] = await tx.rows("SELECT id FROM own.letter_group")
    page = (await browser.get(f"/groups/{row.id}")).text
    assert "Not taken in time: worker-python" in page
    assert f"/letters?group={row.id}" in page
    assert f'href="/groups/{row.id}"' in (await browser.get("/")).text


async def test_a_group_of_unreadable_letters_names_the_problem_in_words(
    browser: httpx.AsyncClient, store: Database
) -> None:
    letters = (
        a_dead_letter(key=key, parse_error=f"text {key}", parse_problem=ParseProblem.BODY_NOT_JSON)
        for key in "ab"
    )
    await put_on_record(store, *letters, outcome=Outcome.UNREADABLE)
    async with store.transaction() as tx:
        [row] = await tx.rows("SELECT id, detail, letters FROM own.letter_group")
    assert (row.detail, row.letters) == ("body_not_json", 2)
    page = (await browser.get(f"/groups/{row.id}")).text
    assert "Unreadable: body is not JSON" in page
    assert "<dt>detail</dt><dd>body is not JSON</dd>" in page


async def test_of_many_groups_eight_are_shown_and_a_link_to_all(
    browser: httpx.AsyncClient, store: Database
) -> None:
    queues = [f"other.{number}.queue" for number in range(9)]
    letters = [
        a_dead_letter(key=queue, death=a_death(queue=queue), first_death_queue=queue) for queue in queues
    ]
    await put_on_record(store, *letters)
    page = html.unescape((await browser.get("/?fragment=groups")).text)
    assert page.count("data-row") == 8
    [link] = re.findall('href="(/groups[?][^"]+)">all 9<', page)
    assert (await browser.get(link)).text.count("data-row") == 9


async def test_whatever_a_sender_wrote_is_text(store: Database) -> None:
    async with asking(await a_ui_world(store)) as client:
        [number] = await put_on_record(
            store,
            a_dead_letter(
                action_ref=HOSTILE,
                message_type=HOSTILE,
                message_id=HOSTILE,
                routing_key=HOSTILE,
                first_death_queue=HOSTILE,
                death=a_death(queue=HOSTILE, reason=HOSTILE),
                body=HOSTILE.encode(),
                body_size=len(HOSTILE),
            ),
        )
        for path in ("/", f"/letters/{number}", "/letters", f"/letters?search={quote(HOSTILE)}", "/groups"):
            page = (await client.get(path)).text
            assert "<script>alert" not in page
            assert "&lt;script&gt;" in page


async def test_a_group_has_one_name_on_every_page(browser: httpx.AsyncClient, store: Database) -> None:
    [number] = await put_on_record(store, a_dead_letter())
    await history_sql.record_consuming(store, consuming_seconds=180)
    async with store.transaction() as tx:
        [row] = await tx.rows("SELECT id FROM own.letter_group")
        # Back before its letter expired.
        await tx.run(
            """
            INSERT INTO own.worker_change (worker_id, name, at, availability)
            VALUES (7, 'worker-python', now() - interval '4 minutes', 'unavailable'),
                   (7, 'worker-python', now() - interval '1 minute', 'available')
            """
        )
    for path in ("/", "/groups", f"/groups/{row.id}", f"/letters/{number}", f"/groups/{row.id}/reprocess"):
        assert (path, "Worker unavailable: worker-python" in (await browser.get(path)).text) == (path, True)


async def test_a_link_with_a_moment_shows_the_night_in_the_morning(store: Database, world: UiWorld) -> None:
    night = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=5)
    well = world.diagnoser.latest.diagnoses[0]  # type: ignore[union-attr]  # it has looked
    ill = replace(well, health=Health.PROBLEM, explanation="it was a bad night")
    await put_on_record(store, a_dead_letter())
    async with store.transaction() as tx:
        await diagnoses_sql.record_change(tx, [ill], at=night - timedelta(minutes=1))
        await tx.run(
            "INSERT INTO own.letter_minute (minute, group_id, letters, failed, last_at)"
            " SELECT date_trunc('minute', CAST(:at AS timestamptz)), id, 31, 0, :at FROM own.letter_group",
            at=night,
        )
    async with asking(world) as client:
        page = (await client.get("/", params={"at": night.isoformat()})).text
        assert "it was a bad night" in page
        assert f"Diagnosed at {night - timedelta(minutes=1):%H:%M:%S} UTC." in page
        assert "Diagnosed at" not in (await client.get("/")).text
        assert "31 dead letters" in page
        # Relative times count from the moment that is shown, not from the time of the visit.
        assert f'<td class="nowrap">{night:%H:%M:%S}</td>' in page
        end = night.replace(second=0) + timedelta(minutes=1)
        assert f"1 h until {end:%H:%M} UTC" in page
        assert " ago" not in page
        assert ">paused</span>" in page
        assert "data-after" not in page
        assert (await client.get("/?at=yesterday")).status_code == 422
        moment = quote(words.iso(night), safe="")
        assert re.search(rf'href="/letters\?since=[^"&]+&amp;until={moment}"', page)
        assert f'href="/?at={moment}#checks"' in page
        assert f'href="/workers?at={moment}"' in page
        for path in ("/workers", "/topology"):
            assert "These figures are of now" in (await client.get(path, params={"at": moment})).text
            assert "These figures are of now" not in (await client.get(path)).text
        assert "No letter matches" in (await client.get("/letters", params={"at": night.isoformat()})).text


async def test_a_moment_shows_nothing_that_happened_after_it(store: Database, world: UiWorld) -> None:
    quarter = (datetime.now(UTC) - timedelta(hours=5)).replace(minute=30, second=0, microsecond=0)
    night = quarter + timedelta(minutes=4, seconds=30)
    await put_on_record(store, a_dead_letter())
    async with store.transaction() as tx:
        for name, seconds in (("worker-before", -10), ("worker-after", 10)):
            await tx.run(
                """
                INSERT INTO own.history_event (at, topic, kind, subject, replica)
                VALUES (:at, 'workers', 'worker.unavailable', :name, 'test')
                """,
                at=night + timedelta(seconds=seconds),
                name=name,
            )
        for seconds, availability in ((-600, "available"), (10, "unavailable")):
            await tx.run(
                "INSERT INTO own.worker_change (worker_id, name, at, availability) VALUES (8, 'timeline', :at, :as)",
                at=night + timedelta(seconds=seconds),
                **{"as": availability},
            )
        # A minute later, and in the same quarter of an hour.
        await tx.run(
            "INSERT INTO own.letter_minute (minute, group_id, letters, failed, last_at)"
            " SELECT CAST(:at AS timestamptz), id, 31, 0, :at FROM own.letter_group",
            at=quarter + timedelta(minutes=6),
        )
        await tx.run("INSERT INTO own.observed_minute (topic, minute) VALUES ('workers', :at)", at=quarter)
    async with asking(world) as client:
        for span in ("1h", "24h"):
            page = (await client.get("/", params={"span": span, "at": words.iso(night)})).text
            assert "worker-before unavailable" in page
            assert "worker-after" not in page
            assert "timeline: unavailable" not in page
            assert "31 dead letters" not in page
            assert f"until {night:%H}:35 UTC" in page


async def test_letters_of_a_moment_are_those_of_then_and_the_page_stays_there(
    store: Database, browser: httpx.AsyncClient
) -> None:
    night = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=5)
    await put_on_record(store, a_dead_letter(), a_dead_letter(key="k2"), a_dead_letter(key="k3"))
    async with store.transaction() as tx:
        await tx.run("DELETE FROM own.letter_minute")
        for key, minutes in (("k2", 2), ("k3", -2)):
            await tx.run(
                "UPDATE own.letter SET received_at = :at WHERE key = :key",
                at=night - timedelta(minutes=minutes),
                key=key,
            )
    page = (await browser.get("/letters", params={"since": "5m", "at": words.iso(night)})).text
    assert page.count("data-row") == 1
    assert 'data-paused="yes"' in page
    assert "data-after" not in page
    assert "data-seen" not in page
    assert f"These had come by {words.moment(night, datetime.now(UTC))} UTC" in page
    assert f'<input type="hidden" name="at" value="{words.iso(night)}">' in page
    now = (await browser.get("/letters?since=5m")).text
    assert ("data-after" in now, 'data-paused="no"' in now, "These had come by" in now) == (True, True, False)


async def test_letters_have_a_link_to_this_moment_that_keeps_the_filters(browser: httpx.AsyncClient) -> None:
    page = (await browser.get("/letters?worker=7&since=1h")).text
    [link] = re.findall('href="([^"]+)">Link to this moment', page)
    asked = dict(parse_qsl(urlsplit(html.unescape(link)).query))
    assert (asked["worker"], asked["since"]) == ("7", "1h")
    moment = datetime.fromisoformat(asked["at"])
    assert timedelta() <= datetime.now(UTC) - moment < timedelta(minutes=1)
    of_past = (await browser.get(html.unescape(link))).text
    assert 'data-paused="yes"' in of_past
    assert "Link to this moment" not in of_past
    assert words.iso(moment - timedelta(hours=1)) in of_past


async def test_a_fragment_is_the_same_part_of_the_page(browser: httpx.AsyncClient) -> None:
    for name in ("diagnosis", "strip", "chart", "groups"):
        part = (await browser.get(f"/?fragment={name}")).text
        assert "<html" not in part
        assert f'data-fragment="{name}"' in part
    assert 'data-fragment="rows"' in (await browser.get("/workers?fragment=rows")).text


async def test_a_worker_that_is_available_now_ends_its_line_as_available(
    browser: httpx.AsyncClient, store: Database
) -> None:
    async with store.transaction() as tx:
        await tx.run(
            """
            INSERT INTO own.worker_change (worker_id, name, at, availability)
            VALUES (8, 'worker-live', now() - interval '10 minutes', 'available')
            """
        )
        await tx.run(
            """
            INSERT INTO own.observed_minute (topic, minute)
            SELECT 'workers', date_trunc('minute', now()) - n * interval '1 minute' FROM generate_series(0, 20) AS n
            """
        )
    assert "worker-live" in (await browser.get("/")).text
    # The table names what was not available.
    assert re.findall("worker-live: ([a-z]+)", (await browser.get("/?chart=table")).text) == []


async def test_an_outage_of_the_broker_is_a_gap_from_its_first_moment(store: Database) -> None:
    lost = BrokerFact(error="connection refused", since=datetime.now(UTC) - timedelta(seconds=20))
    view = a_view(broker=lost, intake=Unknown("it does not answer"))
    async with asking(await a_ui_world(store, view=view)) as client:
        page = (await client.get("/")).text
        table = (await client.get("/?chart=table")).text
        of_past = (await client.get("/?at=2026-11-15T18:34:30Z")).text
    assert page.count('<rect class="band"') == 2, "at a desk, and on a phone"
    assert re.search("not connected [0-9:]+–[0-9:]+", page)
    assert "dead letters of this time are not complete" in table
    assert "not connected" not in of_past
    async with asking(await a_ui_world(store)) as client:
        assert "not connected" not in (await client.get("/")).text


async def test_a_style_sheet_may_be_kept_and_a_page_never(browser: httpx.AsyncClient) -> None:
    assert (await browser.get("/")).headers["cache-control"] == "no-store"
    sheet = await browser.get("/static/app.css")
    assert "immutable" in sheet.headers["cache-control"]
    assert sheet.headers["content-type"].startswith("text/css")
    assert (await browser.get("/static/..%2frouter.py")).status_code == 404


async def test_an_error_is_a_page_with_the_id_of_its_request(browser: httpx.AsyncClient) -> None:
    lost = await browser.get("/nowhere")
    assert lost.status_code == 404
    assert lost.headers["x-request-id"] in lost.text
    assert "Next:" in lost.text
    assert (await browser.get("/executions/4711")).status_code == 404


async def test_a_chip_of_the_audit_takes_off_its_own_filter_alone(browser: httpx.AsyncClient) -> None:
    page = html.unescape((await browser.get("/audit?action=brake.release&username=a%26b")).text)
    assert 'href="/audit?username=a%26b" aria-label="Remove the filter action: brake.release"' in page
    assert 'href="/audit?action=brake.release" aria-label="Remove the filter username: a&b"' in page
    assert 'href="/audit" aria-label' in html.unescape((await browser.get("/audit?username=ada")).text)


async def test_a_time_that_cannot_be_understood_is_said_and_not_another_one_shown(
    browser: httpx.AsyncClient,
) -> None:
    assert (await browser.get("/?spam=24h")).status_code == 422
    for page in ("/groups", "/letters"):
        for asked in ("since=nonsense", "until=9", "sicne=1h"):
            answer = await browser.get(f"{page}?{asked}")
            assert (page, asked, answer.status_code) == (page, asked, 422)
            assert "data-row" not in answer.text
        assert (await browser.get(f"{page}?since=&until=")).status_code == 200
    assert "from is a time such as" in (await browser.get("/groups?since=nonsense")).text


async def test_the_command_of_the_groups_asks_for_the_same_time(browser: httpx.AsyncClient) -> None:
    for path, asked in (("/groups", ["--since", "24h"]), ("/groups?since=1h", ["--since", "1h"])):
        page = (await browser.get(path)).text
        assert " ".join(f"<span>{word}</span>" for word in asked) in page
    assert "<span>--until</span>" in (await browser.get("/groups?since=2h&until=1h")).text
