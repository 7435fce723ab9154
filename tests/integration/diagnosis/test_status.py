"""The diagnosis of real servers, and `dlq-handler status` as a process: all is well, and then one thing is not."""

import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aio_pika
import pytest

from dlq_handler.cli.open import open_collector
from dlq_handler.diagnosis import shared_view_sql
from dlq_handler.diagnosis.checks import OF_EVERY_VIEW, Check
from dlq_handler.diagnosis.diagnose import diagnose
from dlq_handler.diagnosis.diagnosis import Diagnosis, Health, conclusion_of
from dlq_handler.history import events_sql
from dlq_handler.history.event import REPLICA_STOPPED, Topic
from dlq_handler.settings import load
from sandbox.servers.ports import free_port
from tests.integration.diagnosis.conftest import Patient
from tests.support.builders import a_dead_letter, a_death
from tests.support.eventually import eventually
from tests.support.host_tables import commit_batch
from tests.support.sidecar import SidecarProcess, sidecar_process

ROOT = Path(__file__).parents[3]
OK, PROBLEM, UNKNOWN = Health.OK, Health.PROBLEM, Health.UNKNOWN


async def diagnoses(patient: Patient, **environment: str) -> dict[str, Diagnosis]:
    """By kind, in their order. Keywords are variables."""
    # Where no sidecar of another test listens.
    nowhere = {"ATTUNE__DLQ_HANDLER__HTTP__PORT": str(free_port())}
    settings = load(None, patient.environment | nowhere | environment).settings
    async with open_collector(settings) as collector:
        return {one.check.value: one for one in diagnose(await collector.collect())}


def ill(found: Mapping[str, Diagnosis]) -> dict[str, Health]:
    return {kind: one.health for kind, one in found.items() if one.health is not OK}


@asynccontextmanager
async def workers_that_consume(patient: Patient, *workers: int) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for worker in workers:
            queue = f"worker.{worker}.executions"
            await stack.enter_async_context(patient.consumed(queue, f"worker.{worker}"))
        yield


@asynccontextmanager
async def a_sidecar(patient: Patient, folder: Path) -> AsyncIterator[SidecarProcess]:
    environment: dict[str, Any] = patient.environment
    url = environment["ATTUNE__DATABASE__URL"]
    async with sidecar_process(folder, patient.amqp_url, url, **environment) as sidecar:
        yield sidecar


async def run_by_cron(sidecar: SidecarProcess) -> str:
    """The output of the line for crontab on the page about monitoring: what cron mails."""
    page = (ROOT / "docs/how-to/monitoring.md").read_text()
    [line] = re.findall(r"^\*/5 \* \* \* \*  (.+)$", page, re.MULTILINE)
    assert "%" not in line, "cron ends a command at the first one"
    _, out, err = await sidecar.shell(line)
    return out + err


async def test_a_healthy_world_is_ok_until_the_sidecar_ends(patient: Patient, tmp_path: Path) -> None:
    async with workers_that_consume(patient, 1, 2), a_sidecar(patient, tmp_path) as sidecar:
        port = {"ATTUNE__DLQ_HANDLER__HTTP__PORT": str(sidecar.port)}

        async def is_well() -> bool:
            # The management API hears of consumers a little later than they are there, and a canary takes its time.
            return ill(await diagnoses(patient, **port)) == {}

        await eventually(is_well, timeout=60)
        gate = (await diagnoses(patient, **port))["safety gate"]
        assert gate.evidence == (f"asked: http://127.0.0.1:{sidecar.port}",)

        async def shared_view_is_well() -> str:
            code, out, err = await sidecar.cli("status")
            assert code == 0, out + err
            return out

        # The replica's own view is up to 10 s older than the one that was collected here.
        out = await eventually(shared_view_is_well, timeout=60)
        header, *lines = [line.split("\t") for line in out.splitlines()]
        assert header[:3] == ["STATE", "COMPONENT", "CHECK"]
        assert {tuple(line[:1]) for line in lines} == {("ok",)}
        # Flows are off, and orphans are counted when heartbeats have been read for long enough.
        off = {Check.FLOWS, Check.LEAKED_QUEUES, Check.RETURNED_WORKERS, Check.ORPHANED_QUEUES}
        assert {line[2] for line in lines} == set(OF_EVERY_VIEW) - off
        assert all(len(line) == len(header) for line in lines)
        assert await run_by_cron(sidecar) == ""

        await sidecar.kill()

        async def is_missed() -> bool:
            return ill(await diagnoses(patient)).get("replicas") is PROBLEM

        await eventually(is_missed, timeout=60)

        async def status_misses_it() -> tuple[int, Any]:
            # The view that the killed replica shared is valid for three of its intervals.
            code, out, _ = await sidecar.cli("status", "--output", "json")
            assert code == 1, out
            return code, json.loads(out)

        code, answer = await eventually(status_misses_it, timeout=150)
        mailed = (await run_by_cron(sidecar)).splitlines()

    assert [line.split("\t")[0] for line in mailed[:2]] == ["STATE", "problem"]
    assert not [line for line in mailed if line.startswith("ok")]
    assert code == 1
    assert answer["conclusion"] == "problem"
    first = answer["diagnoses"][0]
    assert (first["component"], first["check"]) == ("dlq-handler", "replicas")
    assert first["runbook"] == "docs/runbook.md#dlq-not-processed"


async def test_status_reports_a_clean_stop_of_the_only_replica_at_once(
    patient: Patient, tmp_path: Path
) -> None:
    """The view that it shared would be valid for three more of its intervals."""
    async with workers_that_consume(patient, 1, 2), a_sidecar(patient, tmp_path) as sidecar:

        async def is_shared() -> bool:
            found = await shared_view_sql.read_shared(patient.store)
            return found is not None and found.is_valid

        await eventually(is_shared, timeout=60)
        assert await sidecar.terminate() == 0
        code, out, _ = await sidecar.cli("status", "--output", "json")

    first = json.loads(out)["diagnoses"][0]
    assert (code, first["check"], first["health"]) == (1, "replicas", "problem")


async def test_without_a_sidecar_all_other_checks_are_made_on_the_servers(patient: Patient) -> None:
    async with workers_that_consume(patient, 1, 2):
        found = await diagnoses(patient)

    assert ill(found) == {
        "replicas": PROBLEM,
        "timeout monitor": PROBLEM,
        "safety gate": UNKNOWN,
        "canary": UNKNOWN,
    }
    assert next(iter(found)) == "replicas", "the worst first"


async def test_an_unavailable_worker_is_named_with_its_harm_and_since_when(patient: Patient) -> None:
    silent_at = datetime.now(UTC) - timedelta(minutes=31, seconds=40)
    await patient.host.session.execute(
        "UPDATE worker SET last_heartbeat = $1, name = 'worker-python', status = 'inactive' WHERE id = 1",
        silent_at,
    )
    executions = await patient.host.add_executions(3, worker=1)
    queue = "worker.1.executions"
    await commit_batch(
        patient.store,
        [
            await patient.host.letter_for(number, worker_id=1, first_death_queue=queue)
            for number in executions[:2]
        ],
    )
    async with workers_that_consume(patient, 2):
        found = await diagnoses(patient)

    gone = found["worker unavailable"]
    assert gone.health is PROBLEM
    assert gone.explanation == (
        "worker-python (1) has been unavailable for 30 min; dlq-handler ended 2 of its executions in the last hour, "
        "1 waits."
    )
    assert gone.since == silent_at + timedelta(seconds=90), "three heartbeats of 30 s later"
    assert found["worker queue"].health is OK, "of one that is gone no consumer is expected"


async def test_a_worker_without_consumer_or_with_a_backlog_is_reported(
    patient: Patient,
) -> None:
    await patient.host.add_executions(2, worker=2)
    await patient.host.session.execute("UPDATE execution SET updated = now() - interval '290 seconds'")
    await send_to_worker(patient, 2)
    idle = {"ATTUNE__MESSAGE_QUEUE__RABBITMQ__WORKER_QUEUE_TTL_MS": "300000"}
    unattended = await diagnoses(patient, **idle)
    await patient.host.session.execute(
        "UPDATE worker SET last_heartbeat = now() - interval '1 hour' WHERE id = 1"
    )
    async with workers_that_consume(patient, 1):
        hung = await diagnoses(patient, **idle)

    assert unattended["worker queue"].health is PROBLEM
    assert " (2) reports, but its queue has no consumer" in unattended["worker queue"].explanation
    assert "1 message(s) wait there" in unattended["worker queue"].explanation
    assert hung["worker hung"].health is PROBLEM
    assert hung["worker unavailable"].health is OK, "it holds its queue"


async def test_workers_that_report_without_consuming_are_named_though_no_message_waits(
    patient: Patient, tmp_path: Path
) -> None:
    """Nothing proves a restart of the broker here, so none is claimed."""

    async def are_named() -> Diagnosis:
        await patient.host.session.execute("UPDATE worker SET last_heartbeat = now()")
        found = await diagnoses(patient)
        assert conclusion_of(found.values()) is PROBLEM
        services = found["services"]
        assert services.health is PROBLEM, services
        assert "(1) and " in services.explanation
        return services

    async with a_sidecar(patient, tmp_path):
        named = await eventually(are_named, timeout=60)

    assert "restart" not in named.explanation
    assert named.action == "Restart these workers."
    assert named.since is not None


async def test_a_worker_that_reports_and_is_inactive_is_named(patient: Patient, tmp_path: Path) -> None:
    async def is_named() -> Diagnosis:
        await patient.host.session.execute(
            "UPDATE worker SET last_heartbeat = now(), status = CASE id WHEN 1 THEN 'inactive' ELSE 'active' END"
            "::worker_status"
        )
        services = (await diagnoses(patient))["services"]
        assert services.health is PROBLEM, services
        return services

    async with workers_that_consume(patient, 1, 2), a_sidecar(patient, tmp_path):
        named = await eventually(is_named, timeout=60)

    assert " (1) reports and is inactive in Attune's worker table" in named.explanation


async def test_without_a_replica_one_look_at_a_worker_without_a_consumer_proves_nothing(
    patient: Patient,
) -> None:
    async with workers_that_consume(patient, 1):
        found = (await diagnoses(patient))["services"]

    assert found.health is UNKNOWN
    assert " (2) reports and had no consumer at this observation" in found.explanation


async def send_to_worker(patient: Patient, worker: int) -> None:
    connection = await aio_pika.connect(patient.amqp_url)
    async with connection:
        channel = await connection.channel()
        await channel.default_exchange.publish(aio_pika.Message(b"{}"), f"worker.{worker}.executions")


async def test_problems_in_our_own_tables_are_reported(patient: Patient) -> None:
    letters = [
        a_dead_letter(key=f"odd-{number}", execution_id=None, parse_error="no JSON") for number in range(3)
    ]
    await commit_batch(patient.store, letters)
    execution = await patient.host.add_execution(worker=1)
    await commit_batch(patient.store, [await patient.host.letter_for(execution)])
    await patient.host.session.execute(
        "UPDATE dlq_handler.outbox SET created_at = now() - interval '10 minutes', problem = 'unroutable',"
        " last_error = 'NO_ROUTE';"
        "UPDATE dlq_handler.brake SET tripped_at = now(), tripped_by = 'one', explanation = '600 executions ended'"
    )
    found = await diagnoses(patient)

    assert found["unusable letters"].explanation.startswith("3 unreadable and 0 unrelated dead letters")
    assert found["brake"].health is PROBLEM
    assert found["brake"].evidence[0] == "600 executions ended"
    assert found["publishing"].health is PROBLEM
    assert found["publishing"].evidence == ("last error: unroutable: NO_ROUTE",)


async def test_no_replica_runs_since_the_last_one_stopped_cleanly(patient: Patient) -> None:
    stopped_at = datetime(2026, 3, 1, 2, 30, tzinfo=UTC)
    async with patient.store.transaction() as tx:
        for minutes in (5, 0):
            at = stopped_at - timedelta(minutes=minutes)
            await events_sql.record_event(tx, topic=Topic.REPLICA, kind=REPLICA_STOPPED, replica="one", at=at)
    found = await diagnoses(patient)

    assert (found["replicas"].health, found["replicas"].since) == (PROBLEM, stopped_at)
    assert found["timeout monitor"].since == stopped_at


async def test_what_the_executor_rejected_for_want_of_a_worker_is_no_fault_of_the_senders(
    patient: Patient,
) -> None:
    requests = "attune.execution.requests.queue"
    request = {"worker_id": None, "first_death_queue": requests}
    await commit_batch(
        patient.store,
        [
            a_dead_letter(
                key="declined",
                **request,
                routing_key="execution.requested",
                death=a_death(queue=requests, reason="rejected"),
            ),
            a_dead_letter(key="expired", **request, death=a_death(queue=requests)),
            a_dead_letter(key="odd", **request, message_type="Odd", death=a_death(reason="rejected")),
        ],
    )
    found = (await diagnoses(patient))["unusable letters"]

    assert found.explanation.startswith("0 unreadable and 2 unrelated dead letters")
    assert "the scheduler also rejected the requests of 1 execution(s)" in found.evidence[0]


async def test_an_unreachable_database_comes_first_and_its_checks_are_unknown(
    patient: Patient, tmp_path: Path
) -> None:
    nowhere = f"postgresql://127.0.0.1:{free_port()}/attune"
    found = await diagnoses(patient, ATTUNE__DATABASE__URL=nowhere)

    assert next(iter(found)) == "database"
    assert {kind for kind, health in ill(found).items() if health is PROBLEM} == {"database", "replicas"}
    assert {kind for kind, one in found.items() if one.health is OK} == {
        "broker", "broker alarm", "topology", "other consumers", "system queues", "completions", "requests",
            "shadow mode",
    }  # fmt: skip
    assert found["worker unavailable"].explanation == "the database is unreachable"
    away = SidecarProcess(
        tmp_path, amqp_url=patient.amqp_url, database_url=nowhere, name="away", environment={}
    )
    code, out, _ = await away.cli("status")
    assert code == 1
    assert out.splitlines()[1].startswith("problem\tdatabase\tdatabase\t")


async def test_an_unreachable_broker_comes_first_and_workers_are_still_reported(
    patient: Patient,
) -> None:
    await patient.host.session.execute(
        "UPDATE worker SET last_heartbeat = now() - interval '1 hour' WHERE id = 1"
    )
    found = await diagnoses(patient, ATTUNE__MESSAGE_QUEUE__URL=f"amqp://127.0.0.1:{free_port()}/")

    assert next(iter(found)) == "broker"
    assert found["worker unavailable"].health is PROBLEM
    assert found["worker queue"].health is UNKNOWN
    assert found["replicas"].health is UNKNOWN


async def test_tables_that_are_not_there_and_no_management_api_are_never_ok(patient: Patient) -> None:
    await patient.host.session.execute("DROP SCHEMA dlq_handler CASCADE")
    found = await diagnoses(
        patient, ATTUNE__DLQ_HANDLER__BROKER__MANAGEMENT_URL=f"http://127.0.0.1:{free_port()}"
    )

    assert found["own tables"].health is PROBLEM
    for kind in (
        "brake",
        "publishing",
        "timeout monitor",
        "unusable letters",
        "canary",
        "broker alarm",
        "topology",
    ):
        assert found[kind].health is UNKNOWN, kind
    assert conclusion_of(found.values()) is PROBLEM


@pytest.mark.parametrize(
    "off", ["ATTUNE__DLQ_HANDLER__MONITOR__ENABLED", "ATTUNE__DLQ_HANDLER__CANARY__ENABLED"]
)
async def test_what_is_switched_off_is_not_looked_for(patient: Patient, off: str) -> None:
    found = await diagnoses(patient, **{off: "false"})

    assert {"timeout monitor", "canary"} - found.keys() == {
        "timeout monitor" if "MONITOR" in off else "canary"
    }
