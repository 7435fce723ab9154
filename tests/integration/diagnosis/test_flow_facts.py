"""What a replica observes of flows and of orphaned queues, on real servers."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.queue_counter import QueueCounter
from dlq_handler.diagnosis.ask_replica import AskedGate
from dlq_handler.diagnosis.check_flows import flow_figures
from dlq_handler.diagnosis.view import OFF, GateFact, OrphansFact, View
from dlq_handler.lifecycle import flows_sql
from dlq_handler.lifecycle.flow import FlowStatus, Step
from dlq_handler.lifecycle.flow_summary import FlowsFact
from dlq_handler.settings.orphans import orphan_finder_of
from dlq_handler.settings.servers import management_api_of, view_collector
from sandbox.attune.topology import verify_redeclare
from tests.integration.diagnosis.conftest import Patient
from tests.unit.lifecycle.builders import a_flow


async def collect(patient: Patient, link: AdminConnection, *, watched_seconds: float = float("inf")) -> View:
    async def ask() -> GateFact:
        return GateFact(causes=())

    settings = patient.settings
    counter = QueueCounter(link, names=management_api_of(settings).queue_names)
    collector = view_collector(
        settings,
        patient.store,
        link,
        cast("AskedGate", SimpleNamespace(ask=ask, watched_seconds=watched_seconds)),
        queues=counter,
        orphans=orphan_finder_of(settings, patient.store, counter),
    )
    return await collector.collect()


async def put(patient: Patient, **fields: Any) -> None:
    async with patient.store.transaction() as tx:
        assert await flows_sql.add(tx, a_flow(**fields))


async def test_flows_are_counted_and_those_to_act_on_are_named(
    patient: Patient, link: AdminConnection
) -> None:
    stopped: dict[str, Any] = {"status": FlowStatus.STOPPED, "step": Step.STOPPED}
    await put(patient, id="waits", step=Step.IDLE, last_error="for a consumer")
    await put(patient, id="left", **stopped, leaked=("a", "b"), archived=3, archived_beyond_limit=4)
    await put(patient, id="over", **stopped, archived=5)
    await put(patient, id="active", status=FlowStatus.ACTIVE)

    view = await collect(patient, link)

    assert isinstance(view.flows, FlowsFact)
    assert view.flows.counts == {
        FlowStatus.STARTING: 0,
        FlowStatus.ACTIVE: 1,
        FlowStatus.STOPPING: 1,
        FlowStatus.STOPPED: 2,
    }
    assert [(note.id, note.leaked) for note in view.flows.notes] == [("waits", ()), ("left", ("a", "b"))]
    figures = flow_figures(view)
    assert (figures.leaked, figures.archived, figures.archived_beyond_limit) == (2, 8, 4)
    assert figures.flows == {"starting": 0, "active": 1, "stopping": 1, "stopped": 2}
    assert view.flows.is_enabled is False


@pytest.mark.parametrize("watched_seconds", [float("inf"), 10.0])
async def test_orphans_are_counted_when_heartbeats_could_be_read_for_long_enough(
    patient: Patient, link: AdminConnection, watched_seconds: float
) -> None:
    await verify_redeclare(patient.amqp_url, {9000: 300_000})
    async with link.channel("prepare a test") as channel:
        await channel.basic_publish(b"{}", routing_key="worker.9000.packs")

    view = await collect(patient, link, watched_seconds=watched_seconds)

    counted = OrphansFact(queues=3, workers=1, ready=1)
    assert view.orphans == (counted if watched_seconds > 1000 else OFF)
