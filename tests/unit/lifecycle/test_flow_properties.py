"""What holds for every record and every observation, and for every order of events in a small model of a broker."""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as some

from dlq_handler.lifecycle import changes
from dlq_handler.lifecycle import next_step as steps
from dlq_handler.lifecycle.flow import (
    Flow,
    FlowKind,
    FlowObservation,
    FlowStatus,
    FlowWorkerState,
    ObservedQueue,
    StopStep,
)
from dlq_handler.lifecycle.next_step import Action, has_returned, next_step
from dlq_handler.lifecycle.options import LifecycleOptions
from tests.unit.lifecycle.builders import EXECUTIONS, LEASE, NOW, OPTIONS, QUEUES, a_flow, rerouted

NAMES = [queue.name for queue in QUEUES]
moments = some.integers(0, 2000).map(lambda seconds: NOW + timedelta(seconds=seconds))
no_or_moments = some.none() | moments
workers = some.builds(
    FlowWorkerState,
    last_heartbeat=no_or_moments,
    has_stopped=some.booleans(),
    has_registered=some.booleans(),
    is_cordoned=some.booleans(),
)
queues = some.builds(
    ObservedQueue,
    ready=some.integers(0, 2),
    consumers=some.integers(0, 2),
    unacked=some.none() | some.integers(0, 2),
)
observations = some.builds(
    FlowObservation,
    worker=some.none() | workers,
    queues=some.dictionaries(some.sampled_from(NAMES), queues),
    open_executions=some.integers(0, 2),
    claimed=some.frozensets(some.sampled_from(NAMES)),
)
flows = some.builds(
    a_flow,
    kind=some.sampled_from(FlowKind),
    status=some.sampled_from(FlowStatus),
    step=some.none() | some.sampled_from(StopStep),
    worker_id=some.none() | some.just(7),
    made=some.frozensets(some.sampled_from(NAMES)),
    has_cordoned=some.booleans(),
    idle_heartbeat=no_or_moments,
    is_retired_bound=some.booleans(),
    since=moments,
    step_since=moments,
    rerouted_at=no_or_moments,
    aborted_at=no_or_moments,
    delete_attempts=some.integers(0, 6),
    next_attempt_at=no_or_moments,
    leaked=some.frozensets(some.sampled_from(NAMES)).map(tuple),
    last_error=some.none() | some.just("why"),
    last_lease=some.sampled_from([None, LEASE, "another process"]),
)
# Records just before a key is unbound, before queues are deleted, and with queues that leaked: among all records these
# are too rare to be met by chance.
attempts = some.sampled_from([0, 4, 5])
named = some.frozensets(some.sampled_from(NAMES)).map(tuple)
unbinding = some.builds(a_flow, step=some.just(StopStep.REROUTED), is_retired_bound=some.booleans())
deleting = some.builds(rerouted, step=some.just(StopStep.DELETED), delete_attempts=attempts, leaked=named)
cleaning = some.builds(
    rerouted, step=some.just(StopStep.STOPPED), status=some.just(FlowStatus.STOPPED), leaked=named
)
options = some.builds(
    LifecycleOptions,
    pause_after=some.sampled_from([None, *(step.value for step in StopStep if step is not StopStep.STOPPED)]),
    consumer_wait_seconds=some.just(60),
    settle_seconds=some.sampled_from([0, 10]),
    delete_tries=some.just(5),
)


@settings(max_examples=1000)
@given(
    flow=some.one_of(flows, unbinding, deleting, cleaning),
    observed=observations,
    options=options,
    now=moments,
)
def test_every_decision_is_safe(
    flow: Flow, observed: FlowObservation, options: LifecycleOptions, now: datetime
) -> None:
    action = next_step(flow, observed, options, now=now, lease=LEASE)
    match action:
        case steps.Unbind():
            assert flow.is_retired_bound, "unbinds before the retired queue is bound"
            assert not observed.consumers, "cuts off a consumer"
        case steps.Delete(queues=deleted):
            for queue in deleted:
                assert queue.name not in observed.claimed, "deletes a queue of another live flow"
                assert queue.name in flow.queue_names, "deletes a queue that is not its own"
                found = observed.queues[queue.name]
                # With a consumer the broker refuses, and the attempt counts.
                assert found.ready == 0 or found.consumers > 0, "deletes before it has drained"
            assert flow.has_reached(StopStep.DELETED) or flow.status is FlowStatus.STOPPED
        case steps.Drain(queue=queue):
            assert not observed.queues[queue.name].consumers, "takes messages from a consumer"
            assert flow.status in {FlowStatus.STOPPING, FlowStatus.STOPPED}
        case steps.Take(step=step):
            assert flow.step is step is StopStep.STOPPED or step.number == (
                0 if flow.step is None else flow.step.number + 1
            )
        case steps.Release():
            assert observed.worker is None, "unbinds the retired queue of a worker that has a row"
        case steps.Create():
            assert flow.last_lease == LEASE, "continues the start of another process"
        case _:
            pass


@given(flow=flows, observed=observations, options=options, now=moments)
def test_a_fresh_heartbeat_aborts_every_stop(
    flow: Flow, observed: FlowObservation, options: LifecycleOptions, now: datetime
) -> None:
    is_stopping = flow.status is FlowStatus.STOPPING
    is_watched = flow.status is FlowStatus.STOPPED and flow.is_retired_bound
    if (is_stopping or is_watched) and has_returned(flow, observed.worker):
        assert isinstance(next_step(flow, observed, options, now=now, lease=LEASE), steps.Abort)


@given(flow=flows, worker=workers)
def test_a_registration_counts_as_a_return_from_the_reroute_on(flow: Flow, worker: FlowWorkerState) -> None:
    registered = replace(worker, has_registered=True)
    assert has_returned(flow, registered) is (
        flow.kind is FlowKind.RETIREMENT or flow.has_reached(StopStep.REROUTED)
    )


@dataclass
class World:
    """A broker with one worker's queues, and its row. Publishes are never mandatory: on an unbound key one is lost."""

    queues: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in NAMES})
    bound: set[str] = field(default_factory=lambda: {EXECUTIONS.name})
    consumers: int = 1
    retired: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    published: int = 0
    lost: list[int] = field(default_factory=list)
    is_alive: bool = True
    is_cordoned: bool = False
    heartbeat: datetime = NOW
    now: datetime = NOW

    def publish(self) -> None:
        self.published += 1
        places = [self.queues[EXECUTIONS.name]] if EXECUTIONS.name in self.bound else []
        places += [self.retired] if "retired" in self.bound else []
        for place in places:
            place.append(self.published)
        if not places:
            self.lost.append(self.published)

    def leave(self) -> None:
        self.consumers, self.is_alive = 0, False

    def come_back(self) -> None:
        """Registration: the row, then the queues as stock declares them."""
        self.is_alive, self.heartbeat = True, self.now
        for name in NAMES:
            self.queues.setdefault(name, [])
        self.bound.add(EXECUTIONS.name)

    def consume(self) -> None:
        if self.is_alive and EXECUTIONS.name in self.queues:
            self.consumers = 1
            self.taken += self.queues[EXECUTIONS.name]
            self.queues[EXECUTIONS.name] = []

    def pass_time(self, seconds: float = 5) -> None:
        self.now += timedelta(seconds=seconds)
        if self.is_alive:
            self.heartbeat = self.now

    def observe(self) -> FlowObservation:
        return FlowObservation(
            worker=FlowWorkerState(
                last_heartbeat=self.heartbeat,
                has_stopped=not self.is_alive,
                has_registered=self.is_alive,
                is_cordoned=self.is_cordoned,
            ),
            queues={
                name: ObservedQueue(
                    ready=len(messages), consumers=self.consumers if name == EXECUTIONS.name else 0
                )
                for name, messages in self.queues.items()
            },
        )

    def act(self, flow: Flow, action: Action, observed: FlowObservation) -> Flow:
        """What `FlowActions` does. The broker itself refuses to delete a queue in use."""
        match action:
            case steps.Take(step=step):
                return changes.taken(flow, step, observed, lease=LEASE, now=self.now)
            case steps.Cordon():
                self.is_cordoned = True
                return changes.cordoned(flow, is_ours=True, lease=LEASE)
            case steps.BindRetired():
                self.bound.add("retired")
                return changes.retired_bound(flow, lease=LEASE)
            case steps.Unbind():
                assert "retired" in self.bound
                self.bound.discard(EXECUTIONS.name)
                return changes.unbound(flow, lease=LEASE, now=self.now)
            case steps.Drain(queue=queue):
                self.taken += self.queues[queue.name]
                self.queues[queue.name] = []
                return flow
            case steps.Delete(queues=deleted):
                errors = []
                for queue in deleted:
                    if self.queues[queue.name] or (queue is EXECUTIONS and self.consumers):
                        errors.append("in use")
                    else:
                        del self.queues[queue.name]
                        self.bound.discard(queue.name)
                return changes.tried_to_delete(flow, errors, lease=LEASE, now=self.now)
            case steps.ListAsLeaked(queues=names):
                return changes.leaked(flow, names, lease=LEASE)
            case steps.Abort():
                self.come_back()
                self.bound.discard("retired")
                self.is_cordoned = False
                return changes.aborted(flow, made_again=(), lease=LEASE, now=self.now)
            case steps.Rebind():
                self.come_back_bindings()
                return flow
            case _:
                return flow

    def come_back_bindings(self) -> None:
        for name in NAMES:
            self.queues.setdefault(name, [])
        self.bound.add(EXECUTIONS.name)

    def kept(self) -> set[int]:
        return {*self.taken, *self.retired, *self.queues.get(EXECUTIONS.name, ())}


def ticked(world: World, flow: Flow, *, most: int = 40, is_crashing: bool = False) -> Flow:
    """One tick: as many actions as there are. A crash loses what the first one would have recorded."""
    for _ in range(most):
        observed = world.observe()
        action = next_step(flow, observed, OPTIONS, now=world.now, lease=LEASE)
        if isinstance(action, steps.Nothing | steps.CheckLater):
            return flow
        after = world.act(flow, action, observed)
        if is_crashing:
            return flow
        flow = after
        if isinstance(action, steps.Rebind | steps.Abort):
            return flow
    return flow


events = some.sampled_from(
    ["publish", "publish", "leave", "come back", "consume", "time", "tick", "act", "crash"]
)


@given(story=some.lists(events, max_size=60))
def test_no_message_is_lost_in_any_order_of_events(story: list[str]) -> None:
    world, flow = World(), a_flow()
    for event in story:
        match event:
            case "publish":
                world.publish()
            case "leave":
                world.leave()
            case "come back":
                world.come_back()
            case "consume":
                world.consume()
            case "time":
                world.pass_time()
            case "tick":
                flow = ticked(world, flow)
            case "act":
                flow = ticked(world, flow, most=1)
            case _:
                flow = ticked(world, flow, is_crashing=True)
        assert world.lost == []
        assert world.kept() == set(range(1, world.published + 1))
        if flow.status is FlowStatus.ACTIVE:
            assert EXECUTIONS.name in world.bound


@given(story=some.lists(events, max_size=40), kind=some.sampled_from(FlowKind))
def test_a_worker_that_leaves_for_good_is_stopped(story: list[str], kind: FlowKind) -> None:
    world, flow = World(), a_flow(kind=kind)
    if kind is FlowKind.RETIREMENT:
        world.leave()
    for event in story:
        if event == "publish":
            world.publish()
        elif event == "time":
            world.pass_time()
        elif event in {"tick", "crash"}:
            flow = ticked(world, flow, is_crashing=event == "crash")
    world.leave()
    for _ in range(20):
        world.pass_time()
        world.publish()
        flow = ticked(world, flow)
    assert (flow.status, flow.step, flow.leaked) == (FlowStatus.STOPPED, StopStep.STOPPED, ())
    assert world.queues == {}
    assert "retired" in world.bound
    assert world.kept() == set(range(1, world.published + 1))


@given(story=some.lists(events, max_size=40))
def test_a_worker_that_returns_ends_with_a_bound_queue_and_no_cordon(story: list[str]) -> None:
    world, flow = World(), a_flow()
    world.leave()
    for event in story:
        if event == "publish":
            world.publish()
        elif event == "time":
            world.pass_time()
        elif event in {"tick", "act"}:
            flow = ticked(world, flow, most=1)
    has_begun = flow.has_reached(StopStep.REROUTED)
    world.pass_time(1)
    world.come_back()
    for _ in range(3):
        world.pass_time()
        flow = ticked(world, flow)
    if has_begun:
        assert flow.status is FlowStatus.ACTIVE
        assert EXECUTIONS.name in world.bound
        assert "retired" not in world.bound
        assert not world.is_cordoned
    else:
        # It had not found the worker idle, so it goes on waiting.
        assert flow.status is FlowStatus.STOPPING
