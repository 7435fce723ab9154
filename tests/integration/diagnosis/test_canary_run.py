"""A canary run on real servers: the stage where each canary ended, and why."""

import asyncio
from typing import Any

import aio_pika
import pytest

from dlq_handler.cli.open import open_canary_run
from dlq_handler.settings import load
from dlq_handler.topology.canary import CANARY_QUEUE
from dlq_handler.topology.canary_run import CanaryRunReport, RunConclusion, RunProblem, Stage
from sandbox.attune import topology
from tests.integration.diagnosis.conftest import Patient
from tests.support.eventually import eventually

INTAKE = topology.DLX_QUEUE
NO_API = {"ATTUNE__DLQ_HANDLER__BROKER__MANAGEMENT_URL": "http://127.0.0.1:9"}


async def run(
    patient: Patient, count: int = 4, *, limit: float = 2.0, environment: dict[str, str] | None = None
) -> CanaryRunReport:
    settings = load(None, patient.environment | (environment or {})).settings
    async with open_canary_run(settings, limit_seconds=limit, say=patient.said.append) as opened:
        return await opened.run(count)


async def on_intake(patient: Patient, change: str, *arguments: Any) -> None:
    """Change the intake queue by a method of its own: `unbind`, `bind`."""
    connection = await aio_pika.connect(patient.amqp_url)
    async with connection:
        queue = await (await connection.channel()).get_queue(INTAKE)
        await getattr(queue, change)(*arguments)


@pytest.mark.usefixtures("sidecar")
async def test_canaries_arrive_with_the_keys_of_all_workers_in_turn(patient: Patient) -> None:
    report = await run(patient, 5)

    assert (report.conclusion, report.problem) == (RunConclusion.ARRIVED, None), report
    assert [one.worker_id for one in report.canaries] == [1, 2, 1, 2, 1]
    for one in report.canaries:
        assert (one.stage, one.received_by) == (Stage.RECEIVED, "dlq-handler.one")
        assert one.confirmed_seconds is not None
        assert one.expired_seconds is not None
        assert one.received_seconds is not None
        assert 0 <= one.confirmed_seconds <= one.expired_seconds <= one.received_seconds < 2.1
        assert one.expired_seconds >= 0.1, "not before its TTL"
    assert patient.said == ["Canaries sent: 5. Waiting up to 2.1 s for them."]
    assert await patient.host.letters() == []
    [one], [other] = [(await run(patient, 1)).canaries for _ in range(2)]
    assert {one.worker_id, other.worker_id} == {1, 2}, "the worker whose last canary is longest ago"


@pytest.mark.usefixtures("sidecar")
@pytest.mark.parametrize("environment", [{}, NO_API], ids=["with management API", "without management API"])
async def test_a_missing_binding_ends_the_canaries_of_that_worker_after_their_expiry(
    patient: Patient, environment: dict[str, str]
) -> None:
    await on_intake(patient, "unbind", topology.DLX, topology.dispatch_key(2))

    report = await run(patient, environment=environment)

    assert (report.conclusion, report.problem) == (RunConclusion.NOT_ARRIVED, RunProblem.BROKEN_ROUTE), report
    assert [(one.worker_id, one.stage, one.problem) for one in report.canaries] == [
        (1, Stage.RECEIVED, None),
        (2, Stage.EXPIRED, RunProblem.BROKEN_ROUTE),
    ] * 2
    assert all(one.expired_seconds is not None and one.expired_seconds < 2 for one in report.canaries)
    assert "The route is broken for worker 2." in report.explanation


async def test_without_a_replica_nothing_is_sent(patient: Patient) -> None:
    report = await run(patient)

    assert (report.conclusion, report.problem, report.canaries) == (
        RunConclusion.UNKNOWN,
        RunProblem.NO_REPLICA,
        (),
    )
    await nothing_was_sent(patient)


async def test_a_stock_executor_alone_is_no_replica(patient: Patient) -> None:
    async with patient.consumed(INTAKE, "executor.dlq"):
        await patient.tags_are_listed(INTAKE, 1)
        report = await run(patient)

    assert (report.conclusion, report.problem) == (RunConclusion.UNKNOWN, RunProblem.NO_REPLICA)
    await nothing_was_sent(patient)


@pytest.mark.usefixtures("sidecar")
async def test_another_consumer_that_may_have_received_them_is_named(patient: Patient) -> None:
    async with patient.consumed(INTAKE, "executor.dlq"):
        await patient.tags_are_listed(INTAKE, 2)
        report = await run(patient)

    assert (report.conclusion, report.problem) == (RunConclusion.NOT_ARRIVED, RunProblem.OTHER_CONSUMER)
    assert "'executor.dlq'" in report.explanation
    assert {one.stage for one in report.canaries} == {Stage.RECEIVED, Stage.EXPIRED}


async def test_a_consumer_of_unknown_owner_is_no_proof_of_a_broken_route(patient: Patient) -> None:
    async with patient.consumed(INTAKE, "who?"):
        report = await run(patient, limit=1, environment=NO_API)

    assert (report.conclusion, report.problem) == (
        RunConclusion.NOT_ARRIVED,
        RunProblem.UNIDENTIFIED_CONSUMER,
    )


@pytest.mark.usefixtures("sidecar")
async def test_of_canaries_whose_queue_was_deleted_the_expiry_is_unknown(patient: Patient) -> None:
    async with asyncio.TaskGroup() as group:
        running = group.create_task(
            run(patient, 2, limit=1, environment={"ATTUNE__DLQ_HANDLER__CANARY__TTL_MS": "2000"}), name="run"
        )
        await eventually(lambda: patient.said)
        connection = await aio_pika.connect(patient.amqp_url)
        async with connection:
            await (await connection.channel()).queue_delete(CANARY_QUEUE)
    report = running.result()

    assert (report.conclusion, report.problem) == (RunConclusion.NOT_ARRIVED, RunProblem.NOT_EXPIRED)
    assert [one.stage for one in report.canaries] == [Stage.CONFIRMED, Stage.CONFIRMED]


@pytest.mark.usefixtures("sidecar")
async def test_without_a_worker_there_is_no_key_to_send_with(patient: Patient) -> None:
    await patient.host.session.execute("DELETE FROM worker")
    report = await run(patient)
    assert (report.conclusion, report.problem) == (RunConclusion.UNKNOWN, RunProblem.NO_WORKER)


@pytest.mark.parametrize(
    ("variable", "url"),
    [
        ("ATTUNE__MESSAGE_QUEUE__URL", "amqp://guest:guest@127.0.0.1:1/"),
        ("ATTUNE__DATABASE__URL", "postgresql://user@127.0.0.1:1/none"),
    ],
)
async def test_a_server_that_is_away_makes_it_unknown(patient: Patient, variable: str, url: str) -> None:
    report = await run(patient, environment={variable: url})
    assert (report.conclusion, report.problem) == (RunConclusion.UNKNOWN, RunProblem.UNAVAILABLE)


@pytest.mark.usefixtures("sidecar")
async def test_a_cancelled_run_leaves_no_message_and_no_dead_letter(patient: Patient) -> None:
    running = asyncio.create_task(run(patient))
    await eventually(lambda: patient.said)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    async def are_gone() -> bool:
        queues = (CANARY_QUEUE, INTAKE)
        return [await topology.ready_count(patient.amqp_url, queue) for queue in queues] == [0, 0]

    await eventually(are_gone)
    assert await patient.host.letters() == []


async def nothing_was_sent(patient: Patient) -> None:
    async with patient.store.transaction() as tx:
        assert await tx.rows("SELECT id FROM own.canary") == []
