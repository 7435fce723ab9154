"""Which queues are orphans, and every reason why some are not."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_handler.host.worker import AvailabilityPolicy, Worker, WorkerQueueNames
from dlq_handler.lifecycle.orphans import (
    CountedQueue,
    OrphanFacts,
    WorkerQueues,
    by_worker,
    decide_orphan,
    facts_of,
)

POLICY = AvailabilityPolicy(unavailable_after_seconds=90)
DAY = 86_400.0
NAMES = WorkerQueueNames()
EXECUTIONS = CountedQueue(name="worker.7.executions", consumers=0, ready=3)
PACKS = CountedQueue(name="worker.7.packs", consumers=0, ready=40)
GONE = OrphanFacts(worker_id=7, queues=(EXECUTIONS, PACKS), worker=None, has_open_executions=False)
SILENT = Worker(id=7, heartbeat_age_seconds=2 * DAY)


def decided(facts: OrphanFacts, *, link_age_seconds: float = 3600) -> WorkerQueues:
    return decide_orphan(facts, after_seconds=DAY, link_age_seconds=link_age_seconds, policy=POLICY)


@pytest.mark.parametrize(
    ("worker", "why"),
    [(None, "the worker has no row"), (SILENT, "the last heartbeat of the worker is 2 d old")],
)
def test_queues_of_a_worker_that_is_gone_are_orphans(worker: Worker | None, why: str) -> None:
    found = decided(replace(GONE, worker=worker))

    assert found.is_orphan
    assert found.why == why
    assert found.queue_names == ("worker.7.executions", "worker.7.packs")
    assert found.ready == 43


@pytest.mark.parametrize(
    ("facts", "why_not"),
    [
        (
            replace(GONE, worker=Worker(id=7, heartbeat_age_seconds=DAY)),
            "the last heartbeat of the worker is no more than 24 h old",
        ),
        (
            replace(GONE, worker=Worker(id=7, heartbeat_age_seconds=-5)),
            "the last heartbeat of the worker is no more than 24 h old",
        ),
        (
            replace(GONE, worker=Worker(id=7, heartbeat_age_seconds=None)),
            "the last heartbeat of the worker is unknown",
        ),
        (
            replace(GONE, queues=(EXECUTIONS, replace(PACKS, consumers=2))),
            "worker.7.packs has 2 consumer(s)",
        ),
        (
            replace(GONE, queues=(replace(EXECUTIONS, consumers=None), PACKS)),
            "the consumers of worker.7.executions are unknown",
        ),
        (replace(GONE, has_open_executions=True), "worker 7 has executions that are not final"),
        (replace(GONE, live_flow="mine"), "flow 'mine' has these queues"),
    ],
)
def test_each_condition_alone_keeps_the_queues(facts: OrphanFacts, why_not: str) -> None:
    found = decided(facts)

    assert not found.is_orphan
    assert found.why_not == (why_not,)


def test_every_reason_is_named() -> None:
    facts = replace(
        GONE,
        worker=Worker(id=7, heartbeat_age_seconds=1),
        queues=(replace(EXECUTIONS, consumers=1),),
        has_open_executions=True,
        live_flow="mine",
    )

    assert len(decided(facts).why_not) == 4


def test_after_an_outage_of_the_database_old_heartbeats_prove_nothing() -> None:
    assert not decided(replace(GONE, worker=SILENT), link_age_seconds=89).is_orphan
    assert decided(replace(GONE, worker=SILENT), link_age_seconds=90).is_orphan


def test_messages_in_the_queues_are_unknown_when_one_count_is() -> None:
    assert decided(replace(GONE, queues=(EXECUTIONS, replace(PACKS, ready=None)))).ready is None


def test_only_queues_of_workers_are_looked_at_by_worker_and_in_order() -> None:
    names = [
        "worker.10.executions",
        "worker.7.packs",
        "worker.7.executions",
        "worker.x.packs",
        "attune.dlx.queue",
    ]
    queues = [CountedQueue(name=name, consumers=0) for name in names]

    found = by_worker(queues, NAMES)

    assert list(found) == [7, 10]
    assert [queue.name for queue in found[7]] == ["worker.7.executions", "worker.7.packs"]


def test_facts_are_joined_by_worker() -> None:
    [seven, eight] = facts_of(
        {7: (EXECUTIONS, PACKS), 8: (CountedQueue(name="worker.8.packs", consumers=0),)},
        workers={8: SILENT},
        with_open_executions={7},
        live_flows={"worker.8.packs": "mine"},
    )

    assert (seven.worker, seven.has_open_executions, seven.live_flow) == (None, True, None)
    assert (eight.worker, eight.has_open_executions, eight.live_flow) == (SILENT, False, "mine")


ages = st.none() | st.floats(min_value=-1e7, max_value=1e7)
facts = st.builds(
    OrphanFacts,
    worker_id=st.just(7),
    queues=st.lists(
        st.builds(CountedQueue, name=st.just("worker.7.packs"), consumers=st.none() | st.integers(0, 2)),
        min_size=1,
        max_size=3,
    ).map(tuple),
    worker=st.none() | st.builds(Worker, id=st.just(7), heartbeat_age_seconds=ages),
    has_open_executions=st.booleans(),
    live_flow=st.none() | st.just("mine"),
)


@given(facts, st.floats(min_value=0, max_value=1e6))
def test_no_queue_that_may_be_needed_is_an_orphan(facts: OrphanFacts, link_age_seconds: float) -> None:
    if decided(facts, link_age_seconds=link_age_seconds).is_orphan:
        assert all(queue.consumers == 0 for queue in facts.queues)
        assert not facts.has_open_executions
        assert facts.live_flow is None
        if facts.worker is not None:
            assert facts.worker.heartbeat_age_seconds is not None
            assert facts.worker.heartbeat_age_seconds > DAY
            assert link_age_seconds >= 90
