"""Which blueprints can be used, and what they become with the values of their parameters."""

from collections.abc import Mapping
from typing import Any

import pytest

from dlq_handler.broker.pubsub import QueueType
from dlq_handler.host.worker import WorkerQueueNames
from dlq_handler.lifecycle.flow_blueprint import (
    BlueprintInvalid,
    Contents,
    FlowBlueprint,
    FlowQueue,
    QueueTemplate,
    blueprint_of,
    check_flow_id,
    worker_blueprint,
)


def a_queue(name: str = "shop.{region}.orders", **fields: Any) -> QueueTemplate:
    return QueueTemplate(**{"name": name, "exchange": "shop", "keys": ("orders.{region}",)} | fields)


def a_blueprint(**fields: Any) -> FlowBlueprint:
    return FlowBlueprint(**{"name": "shop", "params": ("region",), "flow": (a_queue(),)} | fields)


def test_the_shipped_blueprint_has_the_queues_of_a_stock_worker() -> None:
    queues = worker_blueprint().expand({"id": "7"})
    assert queues.worker_id == 7
    assert queues.shared == ()
    assert queues.flow == (
        FlowQueue(
            name="worker.7.executions",
            exchange="attune.executions",
            own_keys=("execution.dispatch.worker.7",),
            ttl_ms=300_000,
            dlx="attune.dlx",
        ),
        FlowQueue(
            name="worker.7.packs",
            exchange="attune.events",
            own_keys=(),
            broadcast_keys=("pack.registered", "pack.deleted"),
            dlx="attune.dlx",
            contents=Contents.ARCHIVE,
        ),
        FlowQueue(
            name="worker.7.cancel",
            exchange="attune.executions",
            own_keys=("execution.cancel.worker.7",),
            dlx="attune.dlx",
            contents=Contents.ARCHIVE,
        ),
    )


def test_the_shipped_blueprint_follows_the_configured_names() -> None:
    names = WorkerQueueNames(queue_pattern="jobs.{id}", routing_key_pattern="job.{id}")
    executions = worker_blueprint(names).expand({"id": "7"}).flow[0]
    assert (executions.name, executions.own_keys) == ("jobs.7", ("job.7",))


def test_parameters_are_filled_in_names_and_keys() -> None:
    blueprint = a_blueprint(
        flow=(a_queue(keys=("orders.{region}", "orders.all"), ttl_ms=5, type="quorum", contents="archive"),),
        shared=(a_queue("shop.log", keys=("log",)),),
    )
    queues = blueprint.expand({"region": "eu"})
    [queue], [shared] = queues.flow, queues.shared
    assert (queue.name, queue.own_keys, queue.broadcast_keys) == (
        "shop.eu.orders",
        ("orders.eu",),
        ("orders.all",),
    )
    assert queue.properties == {"ttl_ms": 5, "dlx": None, "type": QueueType.QUORUM}
    assert queue.topics == ("shop:orders.eu", "shop:orders.all")
    assert (shared.name, queues.worker_id) == ("shop.log", None)


def test_a_queue_is_the_same_after_it_was_on_record() -> None:
    for queue in worker_blueprint().expand({"id": "7"}).flow:
        assert FlowQueue.from_json(queue.as_json()) == queue


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"flow": ()}, "has no queue under flow"),
        ({"flow": (a_queue("shop.orders"),)}, r"'shop\.orders' under flow has no parameter in its name"),
        ({"flow": (a_queue("shop.{area}.orders"),)}, "unknown parameter 'area'; params are region"),
        ({"flow": (a_queue(keys=("orders.{area}",)),)}, "unknown parameter 'area'"),
        ({"flow": (a_queue(keys=()),)}, "has no key"),
        ({"flow": (a_queue("shop.{region}.{orders"),)}, "brace without its partner"),
        ({"flow": (a_queue(), a_queue())}, "is listed twice"),
        ({"shared": (a_queue("shop.{region}.log"),)}, "under shared has a parameter"),
        ({"shared": (a_queue("shop.log", keys=("log.{region}",)),)}, "under shared has a parameter"),
        ({"params": ("region", "size")}, "parameter 'size' is used in no queue"),
        ({"params": ("region", "region")}, "listed twice"),
        ({"params": ("Region",)}, "parameter 'Region' must be"),
        ({"worker_param": "id"}, "worker is 'id', which is not in params"),
        ({"name": "my shop"}, "its name must be"),
        ({"flow": tuple(a_queue(f"q{n}.{{region}}") for n in range(51))}, "more than 50 queues"),
    ],
)
def test_a_blueprint_that_cannot_work_is_refused(fields: Mapping[str, Any], problem: str) -> None:
    with pytest.raises(BlueprintInvalid, match=problem):
        a_blueprint(**fields)


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({}, "missing parameter 'region'.*--param region=VALUE"),
        ({"region": "eu", "size": "1"}, "unknown parameter 'size': blueprint 'shop' has region"),
        ({"region": ""}, "Invalid value ''"),
        ({"region": "eu west"}, "Invalid value 'eu west'"),
        ({"region": "#"}, "Invalid value '#'"),
        ({"region": "x" * 101}, "Invalid value"),
    ],
)
def test_values_that_do_not_fit_are_refused(params: Mapping[str, str], problem: str) -> None:
    with pytest.raises(BlueprintInvalid, match=problem):
        a_blueprint().expand(params)


@pytest.mark.parametrize("worker_id", ["0", "-1", "07", "seven", "1.5", str(2**63)])
def test_a_worker_is_named_by_its_id(worker_id: str) -> None:
    with pytest.raises(BlueprintInvalid, match="Invalid value"):
        worker_blueprint().expand({"id": worker_id})


@pytest.mark.parametrize("name", ["dlx", "events", "enforcements"])
def test_no_flow_gets_a_queue_of_attune(name: str) -> None:
    blueprint = a_blueprint(flow=(a_queue("attune.{region}.queue"),))
    with pytest.raises(BlueprintInvalid, match="belongs to Attune"):
        blueprint.expand({"region": name})


def test_a_name_that_the_broker_cannot_take_is_refused() -> None:
    blueprint = a_blueprint(flow=(a_queue("q." * 100 + "{region}"),))
    with pytest.raises(BlueprintInvalid, match="longer than 255 bytes"):
        blueprint.expand({"region": "x" * 90})


def test_an_unknown_blueprint_names_the_known_ones() -> None:
    with pytest.raises(BlueprintInvalid, match="unknown blueprint 'wroker': must be one of shop, worker"):
        blueprint_of("wroker", {"worker": worker_blueprint(), "shop": a_blueprint()})


@pytest.mark.parametrize("flow_id", ["", " ", "a/b", "a b", "-a", "x" * 101])
def test_an_id_that_no_command_could_name_is_refused(flow_id: str) -> None:
    with pytest.raises(BlueprintInvalid, match="Invalid flow id"):
        check_flow_id(flow_id)
