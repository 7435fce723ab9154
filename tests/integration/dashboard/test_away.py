"""The database goes away: pages that were open are shown from memory, greyed and dated; others say so."""

from dataclasses import replace

from dlq_handler.domain.view import Unknown
from dlq_handler.store.engine import Database
from tests.support.builders import a_dead_letter
from tests.support.tcp_proxy import TcpProxy
from tests.support.ui import a_ui_world, asking, put_on_record


async def test_pages_are_shown_from_memory_with_the_time_of_their_figures(
    store: Database, database: str
) -> None:
    [number, other] = await put_on_record(store, a_dead_letter(), a_dead_letter(key="k2"))
    async with TcpProxy.to(database) as link:
        through = Database(link.url)
        try:
            world = await a_ui_world(through)
            seen = world.diagnoser.latest
            assert seen is not None
            async with asking(world) as client:
                for path in ("/", "/letters", f"/letters/{number}", "/workers"):
                    assert (await client.get(path)).status_code == 200
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
                unseen = await client.get(f"/letters/{other}")
                assert unseen.status_code == 503
                assert "nothing is kept of this page" in unseen.text
        finally:
            await through.dispose()
