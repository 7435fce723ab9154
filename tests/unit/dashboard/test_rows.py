"""Workers and queues as rows: the ill ones first, with what to type; what is unknown is a question mark."""

from datetime import timedelta
from typing import Any

from dlq_handler.dashboard.pages.topology import topology_rows
from dlq_handler.dashboard.pages.workers import worker_rows
from dlq_handler.dashboard.words import State
from dlq_handler.diagnosis.view import Unknown
from dlq_handler.history.history import Segment, Timeline
from dlq_handler.host.worker import QueueObservation, WorkerQueueNames
from dlq_handler.topology.check import CheckedTopology, check
from dlq_handler.workers.availability import Availability
from dlq_handler.workers.service_observation import ServiceObservation
from tests.support.topologies import a_stock_world, bound, dispatch_key, expectation
from tests.support.views import INTAKE, NOW, a_canary, a_worker, ago


def test_workers_that_are_not_ok_come_first_and_history_last() -> None:
    rows = worker_rows(
        [
            a_worker(name="fine", number=1),
            a_worker(name="old", number=2, silent_seconds=200_000),
            a_worker(name="late", number=3, silent_seconds=100),
            a_worker(name="gone", number=4, silent_seconds=1000, scheduled=3),
        ],
        (),
        {4: 604},
    )
    assert [row.name for row in rows] == ["gone", "late", "fine", "old"]
    assert rows[0].letters == "604"
    assert rows[-1].is_silent_for_a_day


def test_a_worker_that_said_goodbye_stopped_and_another_vanished() -> None:
    goodbye: dict[str, Any] = {"status": "inactive", "updated": ago(995)}
    marked: dict[str, Any] = {"status": "inactive", "updated": ago(600)}
    rows = worker_rows(
        [
            a_worker(name="stopped", number=1, silent_seconds=1000, scheduled=1, **goodbye),
            a_worker(name="killed", number=2, silent_seconds=1000, scheduled=1),
            a_worker(name="marked", number=3, silent_seconds=1000, scheduled=1, **marked),
        ],
        (),
        None,
    )
    assert {row.name: row.manner for row in rows} == {
        "stopped": "stopped",
        "killed": "no clean stop",
        "marked": "no clean stop",
    }


def test_a_stopped_worker_without_waiting_work_is_not_red() -> None:
    [row] = worker_rows([a_worker(silent_seconds=1000, status="inactive", updated=ago(999))], (), {})
    assert (row.state, row.word) == (State.UNKNOWN, "stopped")


def test_an_unknown_queue_has_question_marks() -> None:
    unseen, missing, partly = worker_rows(
        [
            a_worker(name="a", number=1, queue=Unknown("no")),
            a_worker(name="b", number=2, queue=None),
            a_worker(name="c", number=3, queue=QueueObservation(consumers=1, ready=1204)),
        ],
        (),
        None,
    )
    assert (unseen.consumers, unseen.ready, unseen.letters) == ("?", "?", "?")
    assert (missing.consumers, missing.ready) == ("no queue", "–")
    assert (partly.ready, partly.unacked) == ("1,204", "?")


def test_since_comes_from_the_record() -> None:
    since = NOW - timedelta(minutes=9)
    timeline = Timeline(
        worker_id=7,
        name="worker-python",
        segments=(Segment(since=since, until=NOW, availability=Availability.AVAILABLE),),
    )
    [row] = worker_rows([a_worker()], [timeline], {})
    assert row.since == since


def checked(*keys: str) -> CheckedTopology:
    return check(a_stock_world(bindings=[bound("attune.dlx", INTAKE, key) for key in keys]), expectation())


def test_a_queue_goes_by_its_exchange_and_key_to_the_intake_queue() -> None:
    rows = topology_rows(checked(dispatch_key()), WorkerQueueNames(), {7: a_canary()})
    [row] = [one for one in rows if one.worker_id == 7]
    assert (row.state, row.exchange, row.key, row.intake) == (State.OK, "attune.dlx", dispatch_key(), INTAKE)
    assert (row.canary, row.canary_state, row.command) == ("0.9 s", State.OK, None)


def test_a_broken_route_comes_first_with_the_command_that_repairs_it() -> None:
    row = topology_rows(checked(), WorkerQueueNames(), {})[0]
    assert (row.state, row.word, row.command) == (State.BAD, "broken route", "dlq-handler topology apply")
    assert row.explanation
    assert row.canary == "–"


def test_a_worker_is_unavailable_since_its_heartbeat_became_too_old_and_not_since_that_was_noticed() -> None:
    gone = a_worker(name="gone", number=4, silent_seconds=1000, scheduled=3)
    noticed = Segment(since=ago(290), until=NOW, availability=Availability.UNAVAILABLE)
    [row] = worker_rows([gone], [Timeline(worker_id=4, name="gone", segments=(noticed,))], {})
    assert row.since == gone.standing.unavailable_since
    assert row.since is not None
    assert row.since < noticed.since


def test_a_worker_that_has_to_be_restarted_is_red_and_says_why() -> None:
    unconsumed = ServiceObservation(queue="q", unconsumed_since=ago(600), first_heartbeat=ago(590))
    inactive = ServiceObservation(queue="q", inactive_heartbeat=ago(590))
    rows = worker_rows(
        [
            a_worker(name="fine", number=1),
            a_worker(name="inactive", number=2, status="inactive", observation=inactive),
            a_worker(
                name="mute", number=3, queue=QueueObservation(consumers=0, ready=0), observation=unconsumed
            ),
        ],
        (),
        {},
    )

    assert [(row.name, row.state, row.word, row.since, row.manner) for row in rows[:2]] == [
        ("inactive", State.BAD, "gets no work", None, "reports and is inactive: restart it"),
        ("mute", State.BAD, "not consuming", ago(600), "reports without consuming: restart it"),
    ]
