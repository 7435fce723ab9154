"""The row of a queue: its owner, and whether the broker has it as its owner declares it."""

from functools import partial
from typing import Any

import pytest

from dlq_handler.host.owners import SYSTEM_QUEUES
from dlq_handler.lifecycle.flow import FlowKind, FlowStatus
from dlq_handler.lifecycle.flow_blueprint import FlowQueue
from dlq_handler.lifecycle.known_queues import known_queues, queues_of_flows, recognize
from dlq_handler.lifecycle.queue_list import (
    FoundQueue,
    KnownQueue,
    OwnerKind,
    QueueRow,
    QueueStatus,
    list_rows,
)
from dlq_handler.settings import Settings
from tests.unit.lifecycle.builders import a_flow

STOCK = {"x-dead-letter-exchange": "attune.dlx", "x-message-ttl": 300_000}


def a_known_queue(**changes: Any) -> KnownQueue:
    fields: dict[str, Any] = {
        "name": "q",
        "owner_kind": OwnerKind.SERVICE,
        "owner": "executor",
        "arguments": {},
    }
    return KnownQueue(**(fields | changes))


def a_found_queue(**changes: Any) -> FoundQueue:
    fields: dict[str, Any] = {"exists": True, "arguments": {}, "ready": 3, "consumers": 1}
    return FoundQueue(**(fields | changes))


def the_row(known: KnownQueue | None, found: FoundQueue | None) -> QueueRow:
    [row] = list_rows([known] if known else [], {"q": found} if found else {})
    return row


def test_a_queue_as_its_owner_declares_it_is_ok() -> None:
    row = the_row(a_known_queue(), a_found_queue())
    assert (row.owner_kind, row.owner, row.exists) == ("service", "executor", True)
    assert (row.ready, row.consumers, row.status, row.explanation) == (3, 1, "ok", None)


def test_a_queue_of_an_unknown_owner_is_other() -> None:
    row = the_row(None, a_found_queue())
    assert (row.owner_kind, row.owner, row.status) == ("other", None, "ok")


@pytest.mark.parametrize(("is_required", "status"), [(True, "missing"), (False, "absent")])
def test_a_queue_that_does_not_exist_is_missing_only_if_it_is_required(
    is_required: bool, status: str
) -> None:
    assert the_row(a_known_queue(is_required=is_required), FoundQueue(exists=False)).status == status


def test_a_queue_that_was_not_asked_about_is_unknown_with_the_reason() -> None:
    row = the_row(a_known_queue(is_required=True), FoundQueue(exists=None, explanation="too many"))
    assert (row.exists, row.ready, row.status, row.explanation) == (None, None, "unknown", "too many")
    assert the_row(a_known_queue(), None).status is QueueStatus.UNKNOWN


def test_other_arguments_are_named_with_both_values() -> None:
    row = the_row(
        a_known_queue(arguments={"x-dead-letter-exchange": "attune.dlx"}),
        a_found_queue(arguments={"x-max-length": 5, "x-dead-letter-exchange": "mine"}),
    )
    assert row.status is QueueStatus.DIFFERS
    assert row.explanation is not None
    assert "x-dead-letter-exchange is 'mine', wanted is 'attune.dlx'" in row.explanation
    assert "x-max-length is 5, wanted is not set" in row.explanation


def test_unknown_arguments_are_no_difference() -> None:
    row = the_row(a_known_queue(arguments=STOCK), a_found_queue(arguments=None, explanation="not asked"))
    assert (row.status, row.explanation) == ("ok", "not asked")


def test_the_default_type_that_a_newer_broker_adds_is_no_difference() -> None:
    assert the_row(a_known_queue(), a_found_queue(arguments={"x-queue-type": "classic"})).status == "ok"
    assert the_row(a_known_queue(), a_found_queue(arguments={"x-queue-type": "quorum"})).status == "differs"


def test_the_ttl_of_a_worker_queue_may_be_any() -> None:
    known = a_known_queue(arguments=STOCK, has_any_ttl=True)
    assert the_row(known, a_found_queue(arguments=STOCK | {"x-message-ttl": 1000})).status == "ok"
    assert the_row(known, a_found_queue(arguments={"x-message-ttl": 1000})).status == "differs"


def test_a_flow_owns_its_queue_although_a_worker_would_have_it() -> None:
    flow = a_known_queue(owner_kind=OwnerKind.FLOW, owner="orders")
    for known in ([flow, a_known_queue()], [a_known_queue(), flow]):
        [row] = list_rows(known, {"q": a_found_queue()})
        assert (row.owner_kind, row.owner) == ("flow", "orders")


def test_a_queue_that_could_not_be_deleted_is_leaked_until_it_is_gone() -> None:
    known = a_known_queue(owner_kind=OwnerKind.FLOW, owner="orders", is_leaked=True)
    assert the_row(known, a_found_queue()).status == "leaked"
    assert the_row(known, FoundQueue(exists=False)).status == "absent"


def test_rows_are_in_the_order_of_owners_and_numbers() -> None:
    known = [
        a_known_queue(name=f"worker.{number}.packs", owner=f"worker {number}") for number in (10, 9, 100)
    ]
    rows = list_rows([*known, a_known_queue()], {"a": a_found_queue()})
    assert [row.name for row in rows] == ["q", "worker.9.packs", "worker.10.packs", "worker.100.packs", "a"]


NAMES = Settings().queue_names


def test_every_queue_of_host_and_dlq_handler_is_known() -> None:
    known = {queue.name: queue for queue in known_queues(NAMES, [7])}
    assert {queue.name for queue in SYSTEM_QUEUES} <= known.keys()
    assert {f"worker.7.{kind}" for kind in ("executions", "packs", "cancel")} <= known.keys()
    assert {"dlq_handler.canary.queue", "dlq_handler.retired.queue"} <= known.keys()
    assert {queue.name for queue in known.values() if queue.is_required} == {
        queue.name for queue in SYSTEM_QUEUES
    } - {"attune.events.queue"}, "a host may run without sensors"


def test_a_separate_intake_queue_is_required() -> None:
    settings = Settings.model_validate({"dlq_handler": {"intake": {"queue": "attune.dlx.sidecar.queue"}}})
    [intake] = [
        queue for queue in known_queues(settings.queue_names, []) if queue.name == "attune.dlx.sidecar.queue"
    ]
    assert (intake.owner, intake.arguments, intake.is_required) == ("dlq-handler", {}, True)


def test_a_host_with_another_dead_letter_exchange_declares_its_queues_with_it() -> None:
    settings = Settings.model_validate({"message_queue": {"rabbitmq": {"dead_letter": {"exchange": "dead"}}}})
    declared = {queue.name: queue.arguments for queue in known_queues(settings.queue_names, [7])}
    assert declared["worker.7.packs"] == {"x-dead-letter-exchange": "dead"}
    assert declared["attune.dlx.queue"] == {}


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("worker.9.cancel", "worker 9"),
        ("dlq_handler.publish_check.0b1c", "dlq-handler"),
        ("attune.notifications.queue", None),
    ],
)
def test_a_queue_without_a_row_is_recognized_by_its_name(name: str, owner: str | None) -> None:
    [row] = list_rows([], {name: a_found_queue()}, partial(recognize, names=NAMES))
    assert row.owner == owner


def rows_of_flow(**fields: Any) -> dict[str, QueueRow]:
    """Beside the worker's own queues, as stock declares them."""
    known = [*queues_of_flows([a_flow(**fields)]), *known_queues(NAMES, [7])]
    found = {queue.name: a_found_queue(arguments=queue.arguments or {}) for queue in known}
    return {row.name: row for row in list_rows(known, found)}


@pytest.mark.parametrize("status", ["starting", "active", "stopping"])
def test_a_live_flow_owns_its_queues(status: str) -> None:
    row = rows_of_flow(id="orders", status=FlowStatus(status))["worker.7.executions"]
    assert (row.owner_kind, row.owner, row.status) == ("flow", "orders", "ok")


def test_a_stopped_flow_owns_only_what_it_could_not_delete() -> None:
    rows = rows_of_flow(id="orders", status=FlowStatus.STOPPED, leaked=("worker.7.packs",))
    packs, cancel = rows["worker.7.packs"], rows["worker.7.cancel"]
    assert (packs.owner_kind, packs.owner, packs.status) == ("flow", "orders", "leaked")
    assert (cancel.owner_kind, cancel.owner, cancel.status) == ("service", "worker 7", "ok")


def test_a_retired_worker_keeps_its_queues_and_a_leaked_one_is_shown() -> None:
    rows = rows_of_flow(kind=FlowKind.RETIREMENT, leaked=("worker.7.packs",))
    packs, cancel = rows["worker.7.packs"], rows["worker.7.cancel"]
    assert (packs.owner_kind, packs.owner, packs.status) == ("service", "worker 7", "leaked")
    assert (cancel.owner_kind, cancel.owner, cancel.status) == ("service", "worker 7", "ok")


@pytest.mark.parametrize(("status", "required"), [("active", True), ("starting", False), ("stopping", False)])
def test_a_queue_of_an_active_flow_is_required(status: str, required: bool) -> None:
    flow = a_flow(status=FlowStatus(status))
    assert {queue.is_required for queue in queues_of_flows([flow])} == {required}


def test_a_shared_queue_belongs_to_its_blueprint() -> None:
    shared = FlowQueue(name="all.orders", exchange="orders", own_keys=("order.made",))
    [*_, row] = queues_of_flows([a_flow(queues=(), shared=(shared,), blueprint="orders")])
    assert (row.name, row.owner_kind, row.owner) == ("all.orders", "flow", "blueprint orders")
    assert list(queues_of_flows([a_flow(queues=(), shared=(shared,), status=FlowStatus.STOPPED)])) == []
