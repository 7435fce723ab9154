"""A plan of the topology: what is found, what would be done, and what keeps it from being applied."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from dlq_handler.broker.admin.snapshot import ExchangeFacts, QueueFacts, Snapshot
from dlq_handler.topology.blueprint import Blueprint
from dlq_handler.topology.plan import (
    PlanEntry,
    PlannedAction,
    TopologyPlan,
    differences,
    list_topology,
    make_plan,
)
from tests.support.topologies import a_stock_world, bound, dispatch_key

DLX, STOCK_QUEUE, OWN = "attune.dlx", "attune.dlx.queue", "attune.dlx.sidecar.queue"
EXCHANGES = [
    ExchangeFacts(name="attune.events", type="topic"),
    ExchangeFacts(name="attune.executions", type="topic"),
    ExchangeFacts(name="attune.notifications", type="fanout"),
    ExchangeFacts(name=DLX, type="direct"),
]


def a_plan(snapshot: Snapshot, workers: Iterable[int] = (7,), **changes: Any) -> TopologyPlan:
    return make_plan(snapshot, Blueprint(**changes), workers, broker="rabbit:5672/%2f")


def a_world(**changes: Any) -> Snapshot:
    fields: dict[str, Any] = {"exchanges": EXCHANGES, "queues": [QueueFacts(name=STOCK_QUEUE)]}
    return Snapshot(**(fields | changes))


def actions(plan: TopologyPlan) -> dict[str, PlannedAction]:
    return {entry.name: entry.action for entry in plan.changes}


def entry(plan: TopologyPlan, name: str) -> PlanEntry:
    return next(entry for entry in plan.entries if entry.name == name)


def test_on_an_empty_broker_everything_is_made() -> None:
    assert actions(a_plan(Snapshot())) == {
        "attune.events": "declare",
        "attune.executions": "declare",
        "attune.notifications": "declare",
        DLX: "declare",
        STOCK_QUEUE: "declare",
        f"{DLX} -> {STOCK_QUEUE}: #": "bind",
        f"{DLX} -> {STOCK_QUEUE}: {dispatch_key()}": "bind",
    }


def test_what_is_there_is_left_as_it_is() -> None:
    world = a_world(bindings=[bound(DLX, STOCK_QUEUE, dispatch_key())])
    plan = a_plan(world)
    assert plan.changes == ()
    assert entry(plan, f"{DLX} -> {STOCK_QUEUE}: {dispatch_key()}").found == "present"
    assert entry(plan, DLX).found == "direct"


def test_an_exchange_of_another_type_and_a_queue_with_other_arguments_are_shown_and_kept() -> None:
    queue = QueueFacts(name=STOCK_QUEUE, arguments={"x-max-length": 5})
    plan = a_plan(a_world(queues=[queue], exchanges=[*EXCHANGES[:3], ExchangeFacts(name=DLX, type="topic")]))
    assert (entry(plan, DLX).wanted, entry(plan, DLX).found, entry(plan, DLX).action) == (
        "direct", "topic", "none",
    )  # fmt: skip
    assert (entry(plan, STOCK_QUEUE).wanted, entry(plan, STOCK_QUEUE).found) == (
        "no arguments", "x-max-length=5",
    )  # fmt: skip


def test_without_the_management_api_bindings_are_unknown_and_made_again() -> None:
    plan = a_plan(a_world(is_complete=False))
    assert entry(plan, f"{DLX} -> {STOCK_QUEUE}: {dispatch_key()}").found == "unknown"
    assert actions(plan) == {f"{DLX} -> {STOCK_QUEUE}: {dispatch_key()}": "bind"}


def test_a_binding_that_an_earlier_setting_left_is_removed() -> None:
    world = a_world(
        queues=[QueueFacts(name=STOCK_QUEUE), QueueFacts(name=OWN)],
        bindings=[bound(DLX, STOCK_QUEUE, dispatch_key())],
    )
    assert actions(a_plan(world, intake_queue=OWN))[f"{DLX} -> {STOCK_QUEUE}: {dispatch_key()}"] == "unbind"
    assert actions(a_plan(world, intake_queue=OWN))[f"{DLX} -> {OWN}: {dispatch_key()}"] == "bind"


def test_an_unchanged_broker_takes_the_plan() -> None:
    for world in (Snapshot(), a_world(), a_stock_world()):
        assert differences(a_plan(world), a_plan(world)) == []


def test_every_change_of_the_broker_is_named() -> None:
    planned = a_plan(a_world())
    changed = a_world(
        exchanges=[*EXCHANGES[1:3], ExchangeFacts(name=DLX, type="topic")],
        queues=[QueueFacts(name=STOCK_QUEUE, arguments={"x-max-length": 5})],
        bindings=[bound(DLX, STOCK_QUEUE, dispatch_key())],
    )
    assert differences(planned, a_plan(changed)) == [
        "The exchange attune.events has changed: topic when planned, absent now.",
        "The exchange attune.dlx has changed: direct when planned, topic now.",
        "The queue attune.dlx.queue has changed: no arguments when planned, x-max-length=5 now.",
        f"The binding {DLX} -> {STOCK_QUEUE}: {dispatch_key()} has changed: absent when planned, present now.",
    ]


def test_another_broker_other_settings_or_another_format_are_refused() -> None:
    planned = a_plan(a_world())
    assert differences(planned, replace(planned, broker="other:5672/%2f")) == [
        "The plan is for rabbit:5672/%2f; the settings name other:5672/%2f."
    ]
    assert "format 0" in differences(replace(planned, format=0), planned)[0]
    found = differences(planned, a_plan(a_world(), intake_queue=OWN))
    assert f"The queue {OWN} is needed now, and the plan lacks it." in found


def test_the_topology_has_every_object_with_its_owner_and_state() -> None:
    rows = {row.name: row for row in list_topology(a_stock_world(), Blueprint(), [7])}
    assert (rows[DLX].owner, rows[DLX].found) == ("common", "direct")
    assert (rows[STOCK_QUEUE].owner, rows[STOCK_QUEUE].found) == ("common", "no arguments")
    requests = rows["attune.execution.requests.queue"]
    assert (requests.owner, requests.wanted) == ("executor", "x-dead-letter-exchange=attune.dlx")
    assert requests.found == requests.wanted
    name = "attune.executions -> attune.execution.requests.queue: execution.requested"
    assert (rows[name].owner, rows[name].found) == ("executor", "present")
    ours = rows[f"{DLX} -> {STOCK_QUEUE}: {dispatch_key()}"]
    assert (ours.owner, ours.found) == ("dlq-handler", "absent")
