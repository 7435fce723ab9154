"""Services without consumers are named, with since when and what to restart. Nothing is claimed that no look proves."""

from typing import Any

import pytest

from dlq_handler.diagnosis.check_services import OTHERS, ServiceFinding, count_services
from dlq_handler.diagnosis.checks import Component
from dlq_handler.diagnosis.diagnose import diagnose
from dlq_handler.diagnosis.diagnosis import Diagnosis, Health
from dlq_handler.diagnosis.view import ObservedWorker, Unknown, View
from dlq_handler.host.worker import QueueObservation
from dlq_handler.workers.service_observation import CURRENT_FOR, ServiceObservation, ServiceObservations
from tests.support.views import a_queue, a_view, a_worker, ago

OK, PROBLEM, UNKNOWN = Health.OK, Health.PROBLEM, Health.UNKNOWN

COMPLETED, REQUESTS = "attune.execution.completed.queue", "attune.execution.requests.queue"
RESTARTED_AT = ago(6900)
STALE_SECONDS = CURRENT_FOR.total_seconds() + 1
NO_CONSUMER = QueueObservation(consumers=0, ready=0, unacked=0)


def a_look(queue: str = COMPLETED, **changed: Any) -> ServiceObservation:
    """Without a consumer since a restart of the broker at 01:05."""
    facts = {"unconsumed_since": ago(6890), "consumed_at": ago(6905), "restarted_at": RESTARTED_AT}
    return ServiceObservation(queue=queue, **(facts | changed))


def a_stranded_worker(number: int = 1, *, heartbeats: int = 2, **changed: Any) -> ObservedWorker:
    first = ago(5.0) if heartbeats == 1 else ago(35.0)
    look = a_look(f"worker.{number}.executions", **({"first_heartbeat": first} | changed))
    return a_worker(name="worker-python", number=number, queue=NO_CONSUMER, observation=look)


def looks(*by_queue: ServiceObservation, age_seconds: float = 5.0) -> ServiceObservations:
    return ServiceObservations(observed_at=ago(age_seconds), by_queue={one.queue: one for one in by_queue})


def without_executor(*recorded: ServiceObservation, **changed: Any) -> View:
    facts = {
        "completions": a_queue(COMPLETED, count=0),
        "requests": a_queue(REQUESTS, count=0),
        "service_observations": looks(*recorded),
    }
    return a_view(**(facts | changed))


def services(view: View) -> Diagnosis:
    [found] = [one for one in diagnose(view) if one.check == "services"]
    return found


def test_after_a_broker_restart_the_executor_and_the_workers_are_named_together() -> None:
    workers = (a_stranded_worker(1), a_worker(number=2), a_stranded_worker(3))
    view = without_executor(a_look(COMPLETED), a_look(REQUESTS), workers=workers)
    found = services(view)

    assert found.explanation == (
        "The broker restarted at 01:05 UTC. Since then the executor's queues have no consumer, and worker-python (1) "
        "and worker-python (3) report without consuming."
    )
    assert found.action == "Restart the executor and these workers."
    assert (found.component, found.since) == (Component.EXECUTOR, RESTARTED_AT)
    assert found.headline == "The executor and 2 workers do not consume"
    assert OTHERS in found.evidence
    assert diagnose(view)[0].check == "services", "it comes before what it causes"


def test_a_worker_counts_after_two_heartbeats_whether_or_not_a_message_waits() -> None:
    once = services(a_view(workers=(a_stranded_worker(heartbeats=1),), service_observations=looks()))
    twice = services(a_view(workers=(a_stranded_worker(heartbeats=2),), service_observations=looks()))

    assert once.health is OK
    assert once.explanation == "No worker has sent two heartbeats without a consumer."
    assert once.evidence == ("worker-python (1): no consumer at this observation",)
    assert (twice.health, twice.component) == (PROBLEM, Component.WORKERS)
    assert (
        twice.explanation
        == "The broker restarted at 01:05 UTC. Since then worker-python (1) reports without consuming."
    )
    assert twice.action == "Restart this worker."


@pytest.mark.parametrize(
    ("changed", "begins"),
    [
        ({}, "The broker restarted at 01:05 UTC. Since then"),
        (
            {"restarted_at": None, "connection_lost_at": ago(6900)},
            "dlq-handler's connection to the broker broke at 01:05 UTC.",
        ),
        ({"restarted_at": None}, "Since 01:05 UTC worker-python (1) reports"),
        (
            {"restarted_at": None, "unconsumed_since": ago(86_400)},
            "Since 2026-02-28 03:00 UTC worker-python (1)",
        ),
    ],
)
def test_a_restart_is_said_only_where_it_is_on_record(changed: dict[str, Any], begins: str) -> None:
    found = services(a_view(workers=(a_stranded_worker(**changed),)))

    assert found.explanation.startswith(begins)
    assert ("restarted" in found.explanation) is (changed == {})


def test_services_of_two_causes_are_listed_separately() -> None:
    later = a_stranded_worker(3, restarted_at=None, consumed_at=None, unconsumed_since=ago(600))
    found = services(
        without_executor(a_look(COMPLETED), a_look(REQUESTS), workers=(a_stranded_worker(1), later))
    )

    assert found.explanation == (
        "The broker restarted at 01:05 UTC. Since then the executor's queues have no consumer, and worker-python (1) "
        "reports without consuming. Since 02:50 UTC worker-python (3) reports without consuming."
    )
    assert found.since == RESTARTED_AT


def test_since_is_true_for_all_that_are_named() -> None:
    workers = [
        a_stranded_worker(number, restarted_at=None, unconsumed_since=ago(seconds))
        for number, seconds in ((1, 3600), (3, 600))
    ]
    found = services(a_view(workers=workers))

    assert found.explanation.startswith("Since 02:50 UTC worker-python (1) and worker-python (3) report")


def test_an_executor_alone_is_named_only_if_its_connection_broke() -> None:
    """One that was stopped has no consumers either: the checks of its queues report it."""
    unproven = services(without_executor(a_look(COMPLETED, restarted_at=None)))
    proven = services(without_executor(a_look(COMPLETED), a_look(REQUESTS)))

    assert unproven.health is OK
    assert (
        proven.explanation
        == "The broker restarted at 01:05 UTC. Since then the executor's queues have no consumer."
    )
    assert proven.action == "Restart the executor."


def test_an_executor_without_a_record_is_named_beside_the_workers_without_a_time() -> None:
    found = services(without_executor(workers=(a_stranded_worker(),)))

    assert found.explanation.startswith(
        "The executor's queues have no consumer. The broker restarted at 01:05 UTC."
    )
    assert found.action == "Restart the executor and this worker."


def test_a_worker_that_reports_and_is_inactive_is_named() -> None:
    def inactive(seconds: float, **row: Any) -> ObservedWorker:
        look = ServiceObservation(queue="worker.7.executions", inactive_heartbeat=ago(seconds))
        return a_worker(status="inactive", updated=ago(5), observation=look, **row)

    found = services(a_view(workers=(inactive(35),)))
    assert found.health is PROBLEM
    assert found.explanation == (
        "worker-python (7) reports and is inactive in Attune's worker table, so the scheduler gives it no work."
    )
    assert (found.action, found.headline) == (
        "Restart this worker.",
        "worker-python (7) reports and gets no work",
    )
    assert services(a_view(workers=(inactive(5),))).health is OK, (
        "one that stops in good order is inactive first"
    )
    assert services(a_view(workers=(inactive(35, is_cordoned=True),))).health is OK
    assert services(a_view(workers=(inactive(95, silent_seconds=60),))).health is OK, (
        "it does not report any more"
    )


def test_without_looks_of_a_replica_one_look_proves_nothing() -> None:
    worker = a_worker(queue=NO_CONSUMER)
    for unknown in (Unknown("no such table"), looks(age_seconds=STALE_SECONDS)):
        found = services(a_view(workers=(worker,), service_observations=unknown))
        assert found.health is UNKNOWN
        assert found.explanation == (
            "worker-python (7) reports and had no consumer at this observation; whether that lasts is not on record"
        )
        assert "`dlq-handler run`" in str(found.action)
        assert services(a_view(service_observations=unknown)).health is OK, "all that report consume"


def test_a_queue_that_cannot_be_seen_is_unknown() -> None:
    blind = a_worker(queue=Unknown("not allowed"))
    found = services(a_view(workers=(blind, a_worker(number=8))))

    assert (found.health, found.explanation) == (UNKNOWN, "worker-python (7): not allowed")
    assert services(a_view(workers=(blind, a_stranded_worker()))).health is PROBLEM


def test_many_workers_are_counted_and_some_of_them_named() -> None:
    found = services(a_view(workers=[a_stranded_worker(number) for number in range(1, 13)]))

    assert "worker-python (5) and 7 more workers report without consuming" in found.explanation
    assert found.headline == "12 workers report without consuming"
    assert "and 2 more" in found.evidence


def counts(view: View) -> list[int | None]:
    counted = count_services(view)
    return [counted[finding] for finding in ServiceFinding]


def test_services_are_counted_for_the_metrics() -> None:
    assert counts(a_view()) == [0, 0, 0]
    inactive = ServiceObservation(queue="worker.8.executions", inactive_heartbeat=ago(35))
    workers = (
        a_stranded_worker(1),
        a_stranded_worker(3),
        a_worker(number=8, status="inactive", observation=inactive),
    )
    assert counts(without_executor(workers=workers)) == [1, 2, 1]


def test_what_is_unknown_is_not_counted_as_none() -> None:
    no_answer = Unknown("no answer")
    assert counts(a_view(completions=no_answer)) == [None, 0, 0]
    assert counts(a_view(completions=no_answer, requests=a_queue(REQUESTS, count=0))) == [1, 0, 0]
    assert counts(a_view(workers=no_answer)) == [0, None, None]
    assert counts(a_view(service_observations=no_answer)) == [0, None, None]
    assert counts(a_view(service_observations=looks(age_seconds=STALE_SECONDS))) == [0, None, None]
    blind = a_worker(queue=no_answer)
    assert counts(a_view(workers=(blind,))) == [0, None, 0]
    assert counts(a_view(workers=(blind, a_stranded_worker()))) == [0, 1, 0]
