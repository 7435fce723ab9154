"""Who consumes the intake queue, how many dead letters wait there, and the queues of the executor."""

from dataclasses import replace

import pytest

from dlq_handler.diagnosis.check_queues import describe_intake, describe_waiting
from dlq_handler.diagnosis.diagnose import diagnose
from dlq_handler.diagnosis.diagnosis import MANAGEMENT_ACTION, Health
from dlq_handler.diagnosis.view import QueueFact, UnknownCause
from dlq_handler.topology.consumers import Consumers
from tests.support.views import INTAKE, a_view

OK, PROBLEM, UNKNOWN = Health.OK, Health.PROBLEM, Health.UNKNOWN


def consumed(count: int, *tags: str) -> Consumers:
    return Consumers(count=count, ready=3, tags=tags)


@pytest.mark.parametrize(
    ("consumers", "replicas", "others"),
    [
        (None, PROBLEM, OK),
        (consumed(0), PROBLEM, OK),
        (consumed(1, "dlq-handler.a"), OK, OK),
        (consumed(2, "dlq-handler.a", "dlq-handler.b"), OK, OK),
        (consumed(2, "dlq-handler.a", "executor.dlq"), OK, PROBLEM),
        (consumed(1, "executor.dlq"), PROBLEM, PROBLEM),
        (Consumers(count=2, ready=0), UNKNOWN, UNKNOWN),
    ],
)
def test_who_consumes_the_intake_queue(consumers: Consumers | None, replicas: Health, others: Health) -> None:
    found = {one.check: one for one in diagnose(a_view(intake=QueueFact(name=INTAKE, consumers=consumers)))}

    assert (found["replicas"].health, found["other consumers"].health) == (replicas, others)  # type: ignore[index]


@pytest.mark.parametrize("lists_fewer", [True, False])
def test_a_consumer_that_is_listed_late_needs_no_repair_of_the_management_api(lists_fewer: bool) -> None:
    consumers = Consumers(count=1, ready=0, lists_fewer=lists_fewer)
    view = a_view(intake=QueueFact(name=INTAKE, consumers=consumers))
    [found] = [one for one in diagnose(view) if one.check == "replicas"]

    assert (found.unknown_cause is UnknownCause.TAKES_TIME) is lists_fewer
    assert (found.action == MANAGEMENT_ACTION) is not lists_fewer


@pytest.mark.parametrize(
    ("consumers", "words"),
    [
        (Consumers(count=0, ready=1), "1 dead letter waits"),
        (Consumers(count=0, ready=6, has_canaries=True), "6 messages (canaries included) wait"),
        (Consumers(count=0, ready=0, has_canaries=True), "0 dead letters wait"),
        (Consumers(count=1, ready=1793, unacknowledged=1500), "3293 dead letters wait"),
        (
            Consumers(count=2, ready=1793, unacknowledged=None, own_unacknowledged=1500),
            "at least 3293 dead letters wait",
        ),
        # The management API is seconds behind: this replica knows its own number.
        (Consumers(count=2, ready=10, unacknowledged=3, own_unacknowledged=20), "30 dead letters wait"),
    ],
)
def test_dead_letters_that_a_replica_holds_wait_too(consumers: Consumers, words: str) -> None:
    assert describe_waiting(consumers) == words
    for tags in ((), ("ours.one",), ("other",), None):
        fact = QueueFact(name="q", consumers=replace(consumers, tags=tags))
        assert words in describe_intake(fact, "ours.")
