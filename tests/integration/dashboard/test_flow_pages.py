"""The pages of flows and queues: what a stop has done, does and would do, and what of that is unknown."""

import html
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx

from dlq_handler.broker.pubsub import QueueType
from dlq_handler.database.engine import Database
from dlq_handler.errors import Unavailable
from dlq_handler.lifecycle import flows_sql
from dlq_handler.lifecycle.flow import FlowStatus, StopStep
from dlq_handler.lifecycle.queue_list import OwnerKind, QueueRow, QueueStatus
from dlq_handler.lifecycle.queue_reader import ReadQueues
from tests.support.ui import a_ui_world, asking
from tests.unit.lifecycle.builders import EXECUTIONS, PACKS, a_flow

HOSTILE = "<script>alert(1)</script>"
WAITS = "step idle has waited more than 1 min for 1 consumer(s) of worker.7.executions"


async def put(store: Database, **fields: Any) -> None:
    async with store.transaction() as tx:
        assert await flows_sql.add(tx, a_flow(**fields))


def text_of(page: httpx.Response) -> str:
    assert page.status_code == 200, page.text
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page.text)).split())


async def test_a_stop_shows_its_step_and_what_it_waits_for(
    browser: httpx.AsyncClient, store: Database
) -> None:
    await put(store, step=StopStep.IDLE, last_error=WAITS)
    listed = text_of(await browser.get("/flows"))
    assert "stopping, waits" in listed
    assert "2 of 6: idle" in listed
    assert WAITS in listed

    shown = text_of(await browser.get("/flows/w7"))

    states = re.findall(r"\d\. (\w+) \S (done|now|waits|to come)", shown)
    assert states == [
        ("signalled", "done"),
        ("idle", "waits"),
        ("rerouted", "to come"),
        ("drained", "to come"),
        ("deleted", "to come"),
        ("stopped", "to come"),
    ]
    assert "execution.dispatch.worker.7 leads to dlq_handler.retired.queue" in shown
    assert "pack.registered, pack.deleted is unbound" in shown


async def test_stopped_flows_are_collapsed_unless_a_queue_is_left(
    browser: httpx.AsyncClient, store: Database
) -> None:
    stopped: dict[str, Any] = {"status": FlowStatus.STOPPED, "step": StopStep.STOPPED}
    await put(store, id="old", **stopped)
    await put(store, id="left", **stopped, leaked=("worker.7.packs",))
    page = await browser.get("/flows")
    before, _, collapsed = page.text.partition("<details")
    assert ('id="flow-left"' in before, 'id="flow-old"' in before) == (True, False)
    assert 'id="flow-old"' in collapsed
    assert "queues left" in before


async def test_an_active_flow_shows_no_steps_and_an_unknown_one_is_not_found(
    browser: httpx.AsyncClient, store: Database
) -> None:
    await put(store, status=FlowStatus.ACTIVE)
    assert "Its stop" not in (await browser.get("/flows/w7")).text
    assert (await browser.get("/flows/w9")).status_code == 404
    assert "Flows are off (dlq_handler.lifecycle.enabled)" in text_of(await browser.get("/flows"))


async def test_what_an_operator_or_the_broker_wrote_is_text(
    browser: httpx.AsyncClient, store: Database
) -> None:
    await put(store, last_error=HOSTILE, comment=HOSTILE, wanted_by=HOSTILE)
    for path in ("/flows", "/flows/w7"):
        assert HOSTILE not in (await browser.get(path)).text


async def test_the_figures_of_an_outage_are_kept(store: Database) -> None:
    await put(store, step=StopStep.IDLE)
    async with asking(await a_ui_world(store, lifecycle_enabled=True)) as client:
        await client.get("/flows")
        async with store.transaction() as tx:
            await tx.run("ALTER TABLE own.flow RENAME TO gone")
        page = text_of(await client.get("/flows"))
    assert "2 of 6: idle" in page
    assert "Database unreachable" in page


ROW = QueueRow(
    name="worker.7.executions",
    owner_kind=OwnerKind.FLOW,
    owner="w7",
    exists=True,
    arguments={},
    ready=3,
    consumers=0,
    status=QueueStatus.OK,
    explanation=None,
)


async def queues_page(store: Database, *rows: QueueRow, **found: Any) -> httpx.Response:
    async def read_queues() -> ReadQueues:
        queues = {EXECUTIONS.name: EXECUTIONS, PACKS.name: replace(PACKS, type=QueueType.CLASSIC)}
        return ReadQueues(rows=rows, at=datetime.now(UTC), flow_queues=queues, **found)

    async with asking(await a_ui_world(store, read_queues=read_queues)) as client:
        return await client.get("/queues")


async def test_queues_show_owner_state_contents_and_what_a_stop_would_do(store: Database) -> None:
    page = await queues_page(
        store,
        ROW,
        replace(ROW, name="worker.7.packs", owner_kind=OwnerKind.SERVICE, owner="worker 7", ready=0),
        replace(ROW, name="attune.dlx.queue", owner_kind=OwnerKind.SERVICE, owner="common"),
        replace(ROW, name=HOSTILE, owner_kind=OwnerKind.OTHER, owner=None, ready=None),
        replace(ROW, name="worker.9.packs", exists=False, status=QueueStatus.ABSENT),
        replace(ROW, name="lost", status=QueueStatus.MISSING, exists=False, ready=None, explanation="why"),
    )
    text = text_of(page)
    assert HOSTILE not in page.text
    assert "3 message(s) are decided as dead letters; execution.dispatch.worker.7 leads to" in text
    assert "it is empty; pack.registered, pack.deleted is unbound; then the queue is deleted" in text
    assert "never deleted" in text
    assert "left alone: its owner is unknown" in text
    assert "worker.9.packs" not in text
    assert "1 more need not exist, and do not." in text
    assert text.index("✕ missing") < text.index("✓ ok"), "problems first"
    assert 'href="/flows/w7"' in page.text
    assert 'href="/workers/7"' in page.text


async def test_what_the_broker_did_not_answer_is_unknown(store: Database) -> None:
    async def no_answer() -> ReadQueues:
        raise Unavailable("broker", "no answer")

    async with asking(await a_ui_world(store, read_queues=no_answer)) as client:
        page = text_of(await client.get("/queues"))
    assert "Unknown: broker: no answer." in page
    limited = text_of(await queues_page(store, ROW, limits=("AMQP cannot list queues",)))
    assert "AMQP cannot list queues" in limited
