"""Queues of the host's services that do not exist."""

from typing import Any

import pytest

from dlq_handler.diagnosis.check_queues import count_missing_queues
from dlq_handler.diagnosis.checks import Check
from dlq_handler.diagnosis.diagnose import diagnose
from dlq_handler.diagnosis.diagnosis import Diagnosis, Health
from dlq_handler.diagnosis.view import Unknown, UnknownCause
from dlq_handler.host.names import COMPLETED_QUEUE, REQUESTS_QUEUE, STOCK_QUEUE
from dlq_handler.topology.system_queues import SystemQueues
from tests.support.views import a_queue, a_view

ENFORCEMENTS, EVENTS = "attune.enforcements.queue", "attune.events.queue"
NOT_ASKED = "unknown whether it exists"


def the_diagnosis(*missing: str, reason: str | None = None) -> Diagnosis:
    fact = SystemQueues(missing=missing, unknown={ENFORCEMENTS: reason} if reason else {})
    [found] = [one for one in diagnose(a_view(system_queues=fact)) if one.check is Check.SYSTEM_QUEUES]
    return found


def test_a_missing_queue_names_the_service_to_restart() -> None:
    found = the_diagnosis(ENFORCEMENTS)
    assert found.health is Health.PROBLEM
    assert found.explanation.startswith(f"There is no queue '{ENFORCEMENTS}'.")
    assert found.action == ("Restart Attune's executor: a service declares its queues only when it starts.")
    assert found.command == "dlq-handler queues list"


def test_queues_of_several_services_name_each_of_them_once() -> None:
    found = the_diagnosis(ENFORCEMENTS, "attune.execution.status.queue", EVENTS)
    assert "3 queues missing" in found.explanation
    assert found.action is not None
    assert found.action.startswith("Restart Attune's executor and Attune's sensor:")
    assert f"{EVENTS}: declared by Attune's sensor" in found.evidence


def test_queues_with_a_check_of_their_own_are_reported_there() -> None:
    fact = SystemQueues(missing=(COMPLETED_QUEUE, REQUESTS_QUEUE, STOCK_QUEUE))
    view = a_view(system_queues=fact)
    [found] = [one for one in diagnose(view) if one.check is Check.SYSTEM_QUEUES]
    assert found.health is Health.OK
    assert count_missing_queues(view) == 3, "the metric counts them all"


def test_the_stock_queue_is_a_system_queue_beside_a_separate_intake_queue() -> None:
    view = a_view(
        intake=a_queue("attune.dlx.sidecar.queue", tags=("dlq-handler.one",)),
        system_queues=SystemQueues(missing=(STOCK_QUEUE,)),
    )
    [found] = [one for one in diagnose(view) if one.check is Check.SYSTEM_QUEUES]
    assert found.action is not None
    assert found.action.startswith("Restart any service of Attune:")


def test_a_queue_that_was_not_asked_about_is_unknown_with_the_reason() -> None:
    found = the_diagnosis(reason=NOT_ASKED)
    assert (found.health, found.unknown_cause) == (Health.UNKNOWN, UnknownCause.TAKES_TIME)
    assert NOT_ASKED in found.explanation


@pytest.mark.parametrize(
    ("fact", "count"),
    [
        (SystemQueues(), 0),
        (SystemQueues(missing=(EVENTS,), unknown={ENFORCEMENTS: NOT_ASKED}), 1),
        (SystemQueues(unknown={ENFORCEMENTS: NOT_ASKED}), None),
        (Unknown("the broker sleeps"), None),
    ],
)
def test_the_metric_is_unknown_only_where_nothing_is_known_to_be_missing(
    fact: Any, count: int | None
) -> None:
    assert count_missing_queues(a_view(system_queues=fact)) == count
