"""What the leader does next about a flow, case by case."""

from datetime import timedelta

import pytest

from dlq_handler.lifecycle import next_step as steps
from dlq_handler.lifecycle.flow import Flow, FlowKind, FlowObservation, FlowStatus, StopStep
from dlq_handler.lifecycle.next_step import Action, next_step, pause_after_attempt
from dlq_handler.lifecycle.options import LifecycleOptions
from tests.unit.lifecycle.builders import (
    CANCEL,
    EXECUTIONS,
    LEASE,
    NOW,
    OPTIONS,
    PACKS,
    a_flow,
    a_queue,
    a_stopped_worker,
    rerouted,
)

STOPPED = a_stopped_worker()
RETURNED = a_stopped_worker(has_stopped=False, has_registered=True, last_heartbeat=NOW + timedelta(seconds=5))


def decided(
    flow: Flow,
    observed: FlowObservation | None = None,
    *,
    after_seconds: float = 0,
    options: LifecycleOptions = OPTIONS,
) -> Action:
    now = NOW + timedelta(seconds=after_seconds)
    return next_step(flow, observed or FlowObservation(worker=STOPPED), options, now=now, lease=LEASE)


def test_a_new_wish_is_begun_before_anything_is_made() -> None:
    wish = a_flow(status=FlowStatus.STARTING, last_lease=None)
    assert decided(wish) == steps.BeginStart()
    assert decided(a_flow(status=FlowStatus.STARTING)) == steps.Create()


def test_a_start_that_failed_or_whose_process_ended_is_rolled_back() -> None:
    assert decided(a_flow(status=FlowStatus.STARTING, last_lease="another process")) == steps.RollBack()
    assert decided(a_flow(status=FlowStatus.STARTING, last_error="queue differs")) == steps.RollBack()


def test_an_active_flow_is_left_alone() -> None:
    assert decided(a_flow(status=FlowStatus.ACTIVE)) == steps.Nothing()


def test_bindings_are_made_again_for_ten_minutes_after_an_aborted_stop() -> None:
    for fields in (
        {"status": FlowStatus.ACTIVE},
        {"status": FlowStatus.STOPPED, "kind": FlowKind.RETIREMENT},
    ):
        flow = a_flow(aborted_at=NOW, **fields)
        assert decided(flow, after_seconds=599) == steps.Rebind()
        assert decided(flow, after_seconds=601) == steps.Nothing()


def test_a_worker_is_cordoned_once_and_a_flow_without_one_needs_none() -> None:
    flow = a_flow(step=StopStep.SIGNALLED)
    working = a_stopped_worker(is_cordoned=False, has_stopped=False, has_registered=True)
    assert decided(flow, FlowObservation(worker=working)) == steps.Cordon(7)
    assert decided(flow) == steps.Take(StopStep.IDLE)
    assert decided(flow, FlowObservation(worker=None)) == steps.Take(StopStep.IDLE)
    assert decided(a_flow(step=StopStep.SIGNALLED, worker_id=None), FlowObservation()) == steps.Take(
        StopStep.IDLE
    )


@pytest.mark.parametrize(
    ("observed", "what"),
    [
        (
            FlowObservation(worker=STOPPED, queues={EXECUTIONS.name: a_queue(consumers=1)}),
            "1 consumer.s. of worker.7.exec",
        ),
        (FlowObservation(worker=RETURNED), "worker 7, which is neither inactive nor unavailable"),
    ],
)
def test_a_stop_waits_for_consumers_and_worker_and_reports_it_late(
    observed: FlowObservation, what: str
) -> None:
    flow = a_flow(step=StopStep.IDLE)
    assert decided(flow, observed, after_seconds=59) == steps.CheckLater()
    waits = decided(flow, observed, after_seconds=61)
    assert isinstance(waits, steps.CheckLater)
    assert waits.report is not None
    assert what.split(" of ", maxsplit=1)[0].replace(".s.", "(s)") in waits.report
    assert decided(flow) == steps.Take(StopStep.REROUTED)


def test_the_retired_queue_is_bound_before_a_key_is_unbound() -> None:
    flow = a_flow(step=StopStep.REROUTED, idle_heartbeat=NOW)
    assert decided(flow) == steps.BindRetired()
    bound = a_flow(step=StopStep.REROUTED, is_retired_bound=True, idle_heartbeat=NOW)
    assert decided(bound) == steps.Unbind()
    assert decided(rerouted(StopStep.REROUTED)) == steps.Take(StopStep.DRAINED)


def test_a_consumer_that_comes_back_before_the_unbind_is_not_cut_off() -> None:
    bound = a_flow(step=StopStep.REROUTED, is_retired_bound=True, idle_heartbeat=NOW)
    queues = {EXECUTIONS.name: a_queue(consumers=1)}
    assert decided(bound, FlowObservation(worker=STOPPED, queues=queues)) == steps.CheckLater()


def test_what_is_left_is_drained_queue_by_queue() -> None:
    queues = {EXECUTIONS.name: a_queue(), PACKS.name: a_queue(ready=3), CANCEL.name: a_queue(ready=1)}
    assert decided(rerouted(), FlowObservation(worker=STOPPED, queues=queues)) == steps.Drain(PACKS)


def test_a_queue_is_kept_while_messages_may_return_to_it() -> None:
    empty = FlowObservation(worker=STOPPED, queues={EXECUTIONS.name: a_queue()})
    assert decided(rerouted(), empty, after_seconds=9) == steps.CheckLater()
    assert decided(rerouted(), empty, after_seconds=10) == steps.Take(StopStep.DELETED)
    held = FlowObservation(worker=STOPPED, queues={EXECUTIONS.name: a_queue(unacked=1)})
    assert decided(rerouted(), held, after_seconds=10) == steps.CheckLater()


def test_a_queue_is_kept_while_an_execution_of_its_worker_is_not_final() -> None:
    open_one = FlowObservation(worker=STOPPED, queues={EXECUTIONS.name: a_queue()}, open_executions=1)
    waits = decided(rerouted(), open_one, after_seconds=120)
    assert isinstance(waits, steps.CheckLater)
    assert waits.report is not None
    assert "1 execution(s) of worker 7 that are not final" in waits.report


def test_existing_queues_are_deleted_and_missing_ones_are_done() -> None:
    queues = {EXECUTIONS.name: a_queue(), CANCEL.name: a_queue()}
    flow = rerouted(StopStep.DELETED)
    assert decided(flow, FlowObservation(worker=STOPPED, queues=queues)) == steps.Delete((EXECUTIONS, CANCEL))
    assert decided(flow) == steps.Take(StopStep.STOPPED)


def test_queues_that_cannot_be_deleted_are_listed_and_the_stop_completes() -> None:
    queues = {EXECUTIONS.name: a_queue(consumers=1)}
    observed = FlowObservation(worker=STOPPED, queues=queues)
    paused = rerouted(StopStep.DELETED, delete_attempts=4, next_attempt_at=NOW + timedelta(seconds=16))
    assert decided(paused, observed, after_seconds=15) == steps.CheckLater()
    assert decided(paused, observed, after_seconds=16) == steps.Delete((EXECUTIONS,))
    tried = rerouted(StopStep.DELETED, delete_attempts=5)
    assert decided(tried, observed) == steps.ListAsLeaked((EXECUTIONS.name,))
    listed = rerouted(StopStep.DELETED, delete_attempts=5, leaked=(EXECUTIONS.name,))
    assert decided(listed, observed) == steps.Take(StopStep.STOPPED)


def test_attempts_to_delete_are_two_seconds_apart_and_growing() -> None:
    assert [pause_after_attempt(number).total_seconds() for number in (1, 2, 3, 4)] == [2, 4, 8, 16]


def test_a_leaked_queue_is_drained_and_deleted_later() -> None:
    flow = rerouted(
        StopStep.STOPPED,
        status=FlowStatus.STOPPED,
        leaked=(PACKS.name,),
        next_attempt_at=NOW + timedelta(seconds=60),
    )
    full = FlowObservation(worker=STOPPED, queues={PACKS.name: a_queue(ready=1)})
    assert decided(flow, full, after_seconds=59) == steps.Nothing()
    assert decided(flow, full, after_seconds=60) == steps.Drain(PACKS)
    used = FlowObservation(worker=STOPPED, queues={PACKS.name: a_queue(consumers=1)})
    assert decided(flow, used, after_seconds=60) == steps.Nothing()
    empty = FlowObservation(worker=STOPPED, queues={PACKS.name: a_queue()})
    assert decided(flow, empty, after_seconds=60) == steps.Delete((PACKS,))
    assert decided(flow, after_seconds=60) == steps.Forget((PACKS.name,))


@pytest.mark.parametrize("step", [StopStep.REROUTED, StopStep.DRAINED, StopStep.DELETED])
def test_a_worker_that_returns_aborts_the_stop_of_a_flow_once_it_was_idle(step: StopStep) -> None:
    assert decided(rerouted(step), FlowObservation(worker=RETURNED)) == steps.Abort(binds=True)
    # An inactive process that goes on sending heartbeats is no worker that has stopped.
    beating = a_stopped_worker(last_heartbeat=NOW + timedelta(seconds=1))
    assert decided(rerouted(step), FlowObservation(worker=beating)) == steps.Abort(binds=True)


@pytest.mark.parametrize("step", [None, StopStep.SIGNALLED, StopStep.IDLE])
def test_a_worker_that_returns_aborts_its_retirement_at_once(step: StopStep | None) -> None:
    flow = a_flow(kind=FlowKind.RETIREMENT, step=step)
    assert decided(flow, FlowObservation(worker=RETURNED)) == steps.Abort(binds=False)


def test_the_retired_queue_stays_bound_until_the_worker_returns_or_its_row_goes() -> None:
    flow = rerouted(StopStep.STOPPED, status=FlowStatus.STOPPED)
    assert decided(flow, after_seconds=10_000) == steps.Nothing()
    assert decided(flow, FlowObservation(worker=RETURNED), after_seconds=10_000) == steps.Abort(binds=True)
    assert decided(flow, FlowObservation(worker=None), after_seconds=599) == steps.Nothing()
    assert decided(flow, FlowObservation(worker=None), after_seconds=600) == steps.Release()


@pytest.mark.parametrize("step", ["signalled", "idle", "rerouted", "drained", "deleted"])
def test_a_stop_pauses_after_the_step_that_the_settings_name(step: str) -> None:
    options = LifecycleOptions(enabled=True, pause_after=step)
    fields = {"is_retired_bound": True, "rerouted_at": NOW} if StopStep(step).number >= 2 else {}
    flow = a_flow(step=StopStep(step), idle_heartbeat=NOW, **fields)
    paused = decided(flow, after_seconds=100, options=options)
    assert paused == steps.CheckLater(f"paused after step {step} by dlq_handler.lifecycle.pause_after")
    if StopStep(step).number >= 2:
        returned = decided(flow, FlowObservation(worker=RETURNED), after_seconds=100, options=options)
        assert returned == steps.Abort(binds=True)


def test_queues_of_another_live_flow_are_left_to_it() -> None:
    queues = {EXECUTIONS.name: a_queue(ready=5), PACKS.name: a_queue()}
    observed = FlowObservation(worker=STOPPED, queues=queues, claimed={EXECUTIONS.name})
    assert decided(rerouted(StopStep.DELETED), observed) == steps.Delete((PACKS,))
    leaked = rerouted(StopStep.STOPPED, status=FlowStatus.STOPPED, leaked=(EXECUTIONS.name,))
    assert decided(leaked, observed) == steps.Forget((EXECUTIONS.name,))
