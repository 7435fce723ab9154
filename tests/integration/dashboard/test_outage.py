"""The database goes away: pages that were open are shown from memory, greyed and dated; others say so."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

from dlq_handler.dashboard.site import Site
from dlq_handler.database.engine import Database
from dlq_handler.diagnosis.diagnose import diagnose
from dlq_handler.diagnosis.since import dated
from dlq_handler.diagnosis.view import DatabaseFact, Unknown
from dlq_handler.ui import PageRefresher
from dlq_handler.web.world import UiWorld
from tests.support.builders import a_dead_letter
from tests.support.tcp_proxy import TcpProxy
from tests.support.ui import a_ui_world, asking, put_on_record


@asynccontextmanager
async def through_a_link(database: str) -> AsyncIterator[tuple[TcpProxy, UiWorld]]:
    """A world whose link to its database can be cut."""
    async with TcpProxy.to(database) as link:
        through = Database(link.url)
        try:
            yield link, await a_ui_world(through)
        finally:
            await through.dispose()


async def test_pages_are_shown_from_memory_with_the_time_of_their_figures(
    store: Database, database: str
) -> None:
    [number, other] = await put_on_record(store, a_dead_letter(), a_dead_letter(key="k2"))
    async with store.transaction() as tx:
        await tx.run(
            "INSERT INTO own.worker_change (worker_id, name, at, availability)"
            " VALUES (7, 'worker-python', now() - interval '1 hour', 'available')"
        )
    async with through_a_link(database) as (link, world):
        seen = world.diagnoser.latest
        assert seen is not None
        async with asking(world) as client:
            for path in ("/", "/letters", f"/letters/{number}", "/workers"):
                assert (await client.get(path)).status_code == 200
            assert "<td>now</td>" in (await client.get("/workers/7")).text
            await link.refuse()
            world.diagnoser.latest = replace(
                seen, view=replace(seen.view, workers=Unknown("the database does not answer"))
            )
            now = (await client.get("/")).text
            assert "Database unreachable" in now
            assert "figures are from" in now
            assert 'class="card old"' in now
            assert "Not taken in time" in now
            assert "Expired after" in (await client.get(f"/letters/{number}")).text
            letters = (await client.get("/letters")).text
            assert "Database unreachable" in letters
            assert "worker-python (7)" in letters
            workers = (await client.get("/workers")).text
            assert re.search("figures are from [0-9:]{8}", workers)
            assert 'class="card old"' in workers
            assert 'id="worker-7">worker-python' in workers
            one = await client.get("/workers/7")
            assert (one.status_code, "figures are from" in one.text) == (200, True)
            assert 'class="card old"' in one.text
            assert "<td>now</td>" not in one.text
            unseen = await client.get(f"/letters/{other}")
            assert unseen.status_code == 503
            assert "nothing is kept of this page" in unseen.text


async def test_an_outage_leaves_the_figures_of_the_last_observation_and_not_of_the_last_visit(
    store: Database, database: str
) -> None:
    """OS1 of the operating review: at night there may be no visit for hours."""
    await put_on_record(store, a_dead_letter())
    async with through_a_link(database) as (link, world):
        seen = world.diagnoser.latest
        assert seen is not None
        site = Site(world=world)
        await PageRefresher(site).tick()
        await link.refuse()
        world.diagnoser.latest = replace(
            seen, view=replace(seen.view, workers=Unknown("the database does not answer"))
        )
        async with asking(world, site=site) as client:
            now, workers = [(await client.get(path)).text for path in ("/", "/workers")]
    assert "figures are from" in now
    assert "Not taken in time" in now
    assert 'id="worker-7">worker-python' in workers


async def test_the_outage_begins_when_a_view_found_it_and_not_when_a_page_was_opened(
    store: Database, database: str
) -> None:
    async with through_a_link(database) as (link, world):
        well = world.diagnoser.latest
        assert well is not None
        view = replace(
            well.view,
            database=DatabaseFact(
                is_unreachable=True, error="unreachable (connect to db-7: connection refused)"
            ),
        )
        began = well.at - timedelta(hours=2, minutes=7)
        async with asking(world) as client:
            await client.get("/")
            await link.refuse()
            not_looked_yet = (await client.get("/")).text
            diagnoses, _ = dated(diagnose(view), {}, at=began)
            world.diagnoser.latest = replace(well, view=view, diagnoses=diagnoses)
            pages = [(await client.get(path)).text for path in ("/", "/workers", "/audit")]
    assert re.search("unreachable</span> since [0-9:]{5};", not_looked_yet)
    assert "All is well" not in not_looked_yet, "in red and in green at once"
    assert "<title>The database is unreachable since " in not_looked_yet
    assert f"since {began:%H:%M}" not in not_looked_yet
    assert all(f"unreachable</span> since {began:%H:%M};" in page for page in pages)
    assert f"The database is unreachable since {began:%H:%M:%S} UTC." in re.sub(
        r"[0-9]{4}-[0-9]{2}-[0-9]{2} ", "", pages[0]
    )


async def test_workers_that_the_last_look_did_not_see_are_shown_as_they_were(store: Database) -> None:
    """The database is back, and the next look is yet to come."""
    world = await a_ui_world(store)
    seen = world.diagnoser.latest
    assert seen is not None
    unseen = replace(seen, view=replace(seen.view, workers=Unknown("it did not answer")))
    async with asking(world) as client:
        await client.get("/")
        world.diagnoser.latest = unseen
        for path in ("/workers", "/workers/7"):
            page = (await client.get(path)).text
            assert "The state of workers is unknown at present; figures are from" in page
            assert "worker-python" in page
    world.diagnoser.latest = unseen
    async with asking(world) as client:
        assert "Unknown: it did not answer." in (await client.get("/workers")).text
        assert (await client.get("/workers/7")).status_code == 503


async def test_of_a_worker_nothing_is_none_only_when_the_record_says_so(
    store: Database, database: str
) -> None:
    async with through_a_link(database) as (link, world), asking(world) as client:
        await link.refuse()
        page = (await client.get("/workers/7")).text
    assert "None." not in page
    assert "Nothing is on record" not in page
    assert page.count("Unknown: the database is unreachable") == 2


async def test_what_was_never_read_is_a_question_mark_and_no_empty_chart(
    store: Database, database: str
) -> None:
    night = "2026-11-15T18:34:30Z"
    async with through_a_link(database) as (link, world), asking(world) as client:
        await link.refuse()
        pages = {path: (await client.get(path)).text for path in ("/", f"/?at={night}", "/?chart=table")}
    for path, page in pages.items():
        assert (path, "<svg" in page, "<caption" in page) == (path, False, False)
        assert "Unknown: the database is unreachable, and nothing is kept of this time." in page
        assert "No dead letters" not in page
        assert re.search('href="[^"]*chart=table[^"]*">as table</a>', page)
    of_past = pages[f"/?at={night}"]
    assert "no diagnosis is on record" not in of_past
    assert "Unknown: the database is unavailable, so the diagnosis" in of_past
    assert "✓" not in of_past
