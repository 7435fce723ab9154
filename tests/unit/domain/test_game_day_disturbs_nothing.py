"""What a game day makes is known as its own everywhere, and counts for nothing real."""

import re

import pytest

from dlq_handler.domain.broker_permissions import broker_permissions
from dlq_handler.domain.gate import recall
from dlq_handler.domain.judge_batch import Ruling
from dlq_handler.domain.letter_record import Entry
from dlq_handler.domain.topology import STOCK_QUEUE, Blueprint
from dlq_handler.domain.topology_check import Conclusion, QueueRole, check
from dlq_handler.domain.topology_drift import find_drift
from dlq_handler.domain.topology_finding import Expectation
from dlq_handler.domain.topology_walk import Answer
from dlq_handler.domain.verdict import Fail, Keep, Outcome
from dlq_handler.services.letter_log import tell_of_letters
from dlq_handler.surface.metrics import Metrics
from tests.support.builders import NOON, a_dead_letter
from tests.support.topologies import DLX, a_stock_world, a_worker_queue, bound, dispatch_key, expectation

LETTER = a_dead_letter(worker_id=-1, action_ref="dlq_handler.game_day")
QUEUE = a_worker_queue(-1, arguments={"x-dead-letter-exchange": DLX, "x-message-ttl": 5000})
KEYS = [bound(DLX, STOCK_QUEUE, dispatch_key(7)), bound(DLX, STOCK_QUEUE, dispatch_key(-1))]


@pytest.mark.parametrize("worker_ids", [frozenset({7}), None], ids=["", "with the database away"])
def test_its_queue_is_no_workers_and_its_ttl_no_drift(worker_ids: frozenset[int] | None) -> None:
    world = a_stock_world(workers=[7, -1], queues=[QUEUE], bindings=KEYS)
    expected = Expectation(blueprint=Blueprint(), worker_ids=worker_ids, ttl_ms=300_000)
    checked = check(world, expected)

    assert checked.conclusion is Conclusion.FINE
    [row] = [one for one in checked.queues if one.queue == QUEUE.name]
    assert (row.role, row.arrives) == (QueueRole.GAME_DAY, Answer.ARRIVES)
    assert not any(QUEUE.name in finding.subject for finding in checked.findings)


def test_a_hole_in_front_of_it_is_no_hole_of_the_host() -> None:
    world = a_stock_world(workers=[7, -1], queues=[QUEUE], bindings=KEYS[:1])

    assert check(world, expectation()).conclusion is Conclusion.FINE


def test_a_binding_that_a_killed_one_left_is_not_reported_as_a_workers() -> None:
    assert find_drift(a_stock_world(bindings=KEYS), expectation()) == ()


def test_its_letters_are_no_witnesses_for_the_gate() -> None:
    ruled = [
        Ruling(letter=LETTER, verdict=Fail("")),
        Ruling(letter=LETTER, verdict=Keep(Outcome.UNKNOWN_EXECUTION, "")),
    ]

    assert recall({5: True}, ruled) == {5: True}


def test_its_letters_count_in_no_metric() -> None:
    metrics = Metrics()
    before = _counts(metrics)

    tell_of_letters([Entry(letter=LETTER, outcome=Outcome.FAILED, why="")], NOON, metrics)
    assert _counts(metrics) == before
    tell_of_letters([Entry(letter=a_dead_letter(), outcome=Outcome.FAILED, why="")], NOON, metrics)
    assert _counts(metrics) != before


def _counts(metrics: Metrics) -> list[bytes]:
    return [line for line in metrics.exposition().splitlines() if line.startswith(b"dlq_handler_")]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("configure", "worker.-1.executions"),
        ("configure", "dlq_handler.game_day.queue"),
        ("write", "worker.-1.executions"),
        ("write", "dlq_handler.game_day.queue"),
        ("read", "dlq_handler.game_day.queue"),
        ("read", "attune.executions"),
        # The broker asks for these two of whoever declares a queue that dead-letters.
        ("read", "worker.-1.executions"),
        ("write", "attune.dlx"),
    ],
)
def test_its_rights_at_the_broker_are_given_only_to_one_who_holds_it(kind: str, name: str) -> None:
    holder = broker_permissions(Blueprint(), holds_game_days=True)

    assert re.search(getattr(holder, kind), name)
    assert not re.search(getattr(broker_permissions(Blueprint()), kind), name)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("write", "worker.17.executions"),
        ("read", "worker.17.executions"),
        ("configure", "worker.-12.executions"),
    ],
)
def test_the_holder_may_do_nothing_to_real_workers(kind: str, name: str) -> None:
    assert not re.search(getattr(broker_permissions(Blueprint(), holds_game_days=True), kind), name)
