"""The blueprint: which bindings are wanted, and what changes when workers come and go."""

from dlq_handler.host.names import OTHER_KEYS, STOCK_QUEUE
from dlq_handler.host.worker import WorkerQueueNames
from dlq_handler.topology.blueprint import Binding, Blueprint, superseded_bindings, wanted_bindings

OWN = Blueprint(intake_queue="attune.dlx.sidecar.queue")


def test_the_stock_queue_gets_worker_keys_and_nothing_else() -> None:
    assert wanted_bindings(Blueprint(), {1, 2}) == {
        Binding(queue=STOCK_QUEUE, routing_key="execution.dispatch.worker.1"),
        Binding(queue=STOCK_QUEUE, routing_key="execution.dispatch.worker.2"),
    }


def test_a_queue_of_our_own_gets_the_other_keys_too_and_the_stock_queue_none() -> None:
    wanted = wanted_bindings(OWN, {5})

    assert {binding.queue for binding in wanted} == {"attune.dlx.sidecar.queue"}
    assert {binding.routing_key for binding in wanted} == {
        *OTHER_KEYS,
        "execution.dispatch.worker.5",
        "execution.cancel.worker.5",
    }


def test_changing_to_a_queue_of_our_own_takes_our_keys_from_the_stock_queue() -> None:
    assert superseded_bindings(OWN, {5}) == {
        Binding(queue=STOCK_QUEUE, routing_key="execution.dispatch.worker.5")
    }
    assert superseded_bindings(Blueprint(), {5}) == frozenset()


def test_without_intake_nothing_is_bound_and_no_queue_of_ours_is_made() -> None:
    off = Blueprint(intake_queue="attune.dlx.sidecar.queue", has_intake=False)

    assert wanted_bindings(off, {1}) == frozenset()
    assert superseded_bindings(off, {1}) == frozenset()
    assert off.queues == (STOCK_QUEUE,)


def test_keys_follow_the_hosts_own_pattern() -> None:
    names = WorkerQueueNames(queue_pattern="w-{id}", routing_key_pattern="go.{id}")

    assert wanted_bindings(Blueprint(workers=names), {3}) == {Binding(queue=STOCK_QUEUE, routing_key="go.3")}
