"""The addresses of the night's pages, by what they show, and what has to happen before one shows it."""

import re
from datetime import datetime, timedelta

from dlq_handler.database.engine import Database
from dlq_handler.safety.brake import BrakeState, BrakeView, why_tripped
from dlq_handler.safety.options import BrakeOptions
from tests.support import night
from tests.support.browser import Tab
from tests.support.eventually import eventually
from tests.support.night_world import NightWorld


async def night_pages(store: Database, now: datetime) -> dict[str, str]:
    """What every picture and every check goes through."""
    async with store.transaction() as tx:
        letter = await tx.row(
            "SELECT id, group_id, execution_id FROM own.letter WHERE worker_id = :id AND outcome = 'failed'"
            " ORDER BY id DESC LIMIT 1",
            id=night.PYTHON,
        )
        unreadable = await tx.row(
            "SELECT id FROM own.letter WHERE outcome = 'unreadable' ORDER BY id DESC LIMIT 1"
        )
    assert letter is not None
    assert unreadable is not None
    in_the_night = (now - timedelta(minutes=10)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "now": "/",
        "now-24h": "/?span=24h",
        "now-as-table": "/?chart=table",
        "now-at": f"/?at={in_the_night}",
        "letters": "/letters",
        "letters-filtered": "/letters?reason=maxlen&outcome=failed",
        "letters-none": "/letters?search=999999999",
        "letter": f"/letters/{letter.id}",
        "letter-unreadable": f"/letters/{unreadable.id}",
        "groups": "/groups",
        "group": f"/groups/{letter.group_id}",
        "execution": f"/executions/{letter.execution_id}",
        "workers": "/workers",
        "worker": f"/workers/{night.PYTHON}",
        "queues": "/queues",
        "flows": "/flows",
        "topology": "/topology",
        "audit": "/audit",
        "release-brake": "/brake/release",
        "reprocess-letter": f"/letters/{unreadable.id}/reprocess",
        "reprocess-group": f"/groups/{letter.group_id}/reprocess",
    }


async def trip_brake(tab: Tab, world: NightWorld, *, letters: int) -> None:
    """At least this many dead letters wait for its release; `tab` shows the page that releases it.

    More of them after one TTL: messages of the unavailable worker expire too. The brake is tripped right after a round
    of canaries has arrived, so that none of them waits in the intake queue.
    """

    policy = BrakeOptions(max_decisions_per_minute=10_000, hold_seconds=600)
    view = BrakeView(state=BrakeState(), ended_last_minute=10_000, now=world.now)
    explanation = why_tripped(view, policy, changed=500, left_out=letters)

    async def is_tripped() -> bool:
        async with world.store.transaction() as tx:
            row = await tx.row(
                """
                UPDATE own.brake SET tripped_at = now() - interval '40 seconds', tripped_by = 'sidecar-1',
                       hold_until = now() + interval '9 minutes',
                       explanation = :explanation
                 WHERE (SELECT bool_and(received_at IS NOT NULL) FROM own.canary
                         WHERE created_at > now() - interval '2 seconds')
                RETURNING true AS is_tripped
                """,
                explanation=explanation,
            )
        return row is not None

    await eventually(is_tripped)
    await world.let_die(letters)

    async def do_they_wait() -> bool:
        await tab.open("/brake/release")
        found = re.search(r"Afterwards (?:at least )?(\d+) dead letters", await tab.page.inner_text("main"))
        return found is not None and int(found[1]) >= letters

    await eventually(do_they_wait, timeout=60, every=0.5)
