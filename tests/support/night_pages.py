"""The addresses of the night's pages, by what they show."""

from datetime import datetime, timedelta

from dlq_handler.store.engine import Database
from tests.support import night


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
        "topology": "/topology",
        "audit": "/audit",
        "release-brake": "/brake/release",
        "rejudge-letter": f"/letters/{unreadable.id}/rejudge",
        "rejudge-group": f"/groups/{letter.group_id}/rejudge",
        "mute": "/notify/mute",
    }
