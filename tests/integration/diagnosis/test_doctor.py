"""Every line of the doctor on real servers: all is well, and then one thing is not.

A sidecar takes part only where a test is about who consumes: it costs seconds until the management API knows of it.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit, urlunsplit

import aio_pika
import pytest

from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.diagnosis.diagnosis import Diagnosis, Health, conclusion_of
from dlq_handler.host.rights import attune_rights, host_grants, own_grants
from dlq_handler.topology.blueprint import broker_permissions
from sandbox.attune import topology
from sandbox.servers import RabbitMQ
from sandbox.servers.ports import free_port
from tests.integration.diagnosis.conftest import Patient

INTAKE = topology.DLX_QUEUE


def ill(observations: Mapping[str, Diagnosis]) -> dict[str, Health]:
    """What is not ok, by check."""
    return {check: seen.health for check, seen in observations.items() if seen.health is not Health.OK}


def without_replica(**ill: Health) -> dict[str, Health]:
    """Then no canary can arrive."""
    without = {"replicas": Health.PROBLEM, "canary": Health.UNKNOWN}
    return without | {check.replace("_", " "): health for check, health in ill.items()}


@pytest.mark.usefixtures("sidecar")
async def test_a_healthy_world_is_ok_in_every_line(patient: Patient) -> None:
    seen = await patient.examined(with_canary=True)

    assert ill(seen) == {}
    assert conclusion_of(seen.values()) is Health.OK
    assert set(seen) == {
        "settings", "database", "host tables", "own tables", "database rights", "clock", "workers",
        "worker clocks", "broker", "broker clock", "broker rights", "topology", "replicas",
        "other consumers", "completions", "requests", "worker restarts", "canary",
    }  # fmt: skip
    assert patient.said == ["Canaries sent: 2. Waiting up to 2.1 s for them."]
    assert await patient.host.letters() == []


async def test_without_a_sidecar_the_doctor_names_what_is_missing_and_what_to_do(
    patient: Patient,
) -> None:
    await patient.host.session.execute("DROP SCHEMA dlq_handler CASCADE")
    for worker in (1, 2):
        await unbind(patient, worker)

    seen = await patient.examined(with_canary=True)

    assert ill(seen) == {
        "own tables": Health.PROBLEM,
        "topology": Health.PROBLEM,
        "replicas": Health.PROBLEM,
        "canary": Health.UNKNOWN,
    }
    assert all(seen[check].action for check in ill(seen))
    assert "`dlq-handler migrate`" in (seen["own tables"].action or "")
    assert "`dlq-handler run`" in (seen["replicas"].action or "")
    assert "'worker.1.executions', 'worker.2.executions' are lost" in seen["topology"].explanation


@pytest.mark.usefixtures("sidecar")
async def test_a_binding_that_is_missing_loses_the_canary_of_that_worker_alone(patient: Patient) -> None:
    await unbind(patient, 2)

    seen = await patient.examined(with_canary=True)

    assert ill(seen) == {"topology": Health.PROBLEM, "canary": Health.PROBLEM}
    assert "The route is broken for worker 2." in seen["canary"].explanation


@pytest.mark.usefixtures("sidecar")
async def test_a_foreign_consumer_is_a_problem_and_takes_canaries(patient: Patient) -> None:
    async with patient.consumed(INTAKE, "executor.dlq"):
        await patient.tags_are_listed(INTAKE, 2)
        seen = await patient.examined(with_canary=True)

    assert ill(seen) == {"other consumers": Health.PROBLEM, "canary": Health.PROBLEM}
    assert "'executor.dlq'" in seen["other consumers"].explanation
    assert "'executor.dlq'" in seen["canary"].explanation


async def test_only_a_foreign_consumer_is_no_sidecar(patient: Patient) -> None:
    async with patient.consumed(INTAKE, "executor.dlq"):
        await patient.tags_are_listed(INTAKE, 1)
        seen = await patient.examined()

    assert ill(seen) == without_replica(other_consumers=Health.PROBLEM)


@pytest.mark.parametrize(
    ("check", "queue"), [("completions", topology.COMPLETED_QUEUE), ("requests", topology.REQUESTS_QUEUE)]
)
async def test_a_missing_or_unconsumed_queue_of_the_executor_is_a_problem(
    patient: Patient, check: str, queue: str
) -> None:
    connection = await aio_pika.connect(patient.amqp_url)
    async with connection:
        channel = await connection.channel()
        await channel.queue_delete(queue)
        gone = await patient.examined()
        await channel.declare_queue(queue, durable=True, arguments={"x-dead-letter-exchange": topology.DLX})
        await channel.default_exchange.publish(aio_pika.Message(b"{}"), queue)
        unattended = await patient.examined()

    assert ill(gone).keys() >= {check}
    assert gone[check].explanation.startswith(f"There is no queue '{queue}'")
    assert ill(unattended) == without_replica(**{check: Health.PROBLEM})
    assert unattended[check].explanation.startswith(f"'{queue}' has no consumer, and 1 message(s) wait there")
    assert str(unattended[check].action).startswith("Restart Attune's executor"), (
        "it may run without a consumer"
    )


async def test_rights_that_the_role_lacks_are_named(patient: Patient, database: str) -> None:
    url = await a_role_with_all_rights_but_one(patient, database)
    try:
        seen = await patient.examined(ATTUNE__DATABASE__URL=url)
    finally:
        await patient.host.session.execute("DROP OWNED BY examined; DROP ROLE examined")

    assert ill(seen) == without_replica(database_rights=Health.PROBLEM)
    assert "UPDATE (result) on attune.execution" in seen["database rights"].explanation
    assert "`dlq-handler grants --role examined`" in (seen["database rights"].action or "")


async def a_role_with_all_rights_but_one(patient: Patient, database: str) -> str:
    statements = [
        *host_grants("examined", attune_rights("attune")),
        *own_grants("examined", "dlq_handler"),
        "GRANT USAGE ON ALL SEQUENCES IN SCHEMA attune TO examined",
    ]
    await patient.host.session.execute("CREATE ROLE examined LOGIN PASSWORD 'examined'")
    for statement in statements:
        await patient.host.session.execute(
            statement.replace('UPDATE ("status", "result")', "UPDATE (status)")
        )
    parts = urlsplit(database)
    return urlunsplit(parts._replace(netloc=f"examined:examined@{parts.netloc.rpartition('@')[2]}"))


async def test_tables_that_are_not_attunes_are_a_problem(patient: Patient) -> None:
    await patient.host.session.execute("ALTER TABLE execution RENAME COLUMN action_ref TO action_reference")

    seen = await patient.examined()

    assert seen["host tables"].health is Health.PROBLEM
    assert "'column execution.action_ref'" in seen["host tables"].explanation


async def test_another_schema_than_attunes_is_a_problem(patient: Patient) -> None:
    seen = await patient.examined(ATTUNE__DATABASE__SCHEMA="elsewhere")

    assert seen["host tables"].health is Health.PROBLEM
    assert seen["workers"].health is Health.UNKNOWN
    assert "database.schema" in (seen["host tables"].action or "")


async def test_our_tables_at_another_version_are_a_problem(patient: Patient) -> None:
    await patient.host.session.execute("UPDATE dlq_handler.alembic_version SET version_num = '0000'")
    older = await patient.examined()
    await patient.host.session.execute(
        "UPDATE dlq_handler.alembic_version SET version_num = '9999';"
        "UPDATE dlq_handler.compatibility SET least_program_version = '99.0.0'"
    )
    newer = await patient.examined()

    assert ill(older) == ill(newer) == without_replica(own_tables=Health.PROBLEM)


async def test_no_worker_and_workers_from_the_future_are_problems(patient: Patient) -> None:
    await patient.host.session.execute("UPDATE worker SET last_heartbeat = now() + interval '1 minute'")
    fast = await patient.examined()
    await patient.host.session.execute("UPDATE worker SET last_heartbeat = now() - interval '2 days'")
    silent = await patient.examined(with_canary=True)

    assert ill(fast) == without_replica(worker_clocks=Health.PROBLEM)
    assert ill(silent) == without_replica(workers=Health.PROBLEM)


async def test_a_right_that_the_broker_refuses_is_named_one_by_one(
    patient: Patient, rabbitmq: RabbitMQ
) -> None:
    printed = broker_permissions(patient.settings.blueprint, sends_canaries=True)
    vhost = urlsplit(patient.amqp_url).path.removeprefix("/")
    user = f"examined-{vhost}"
    url = patient.amqp_url.replace(f"{rabbitmq.user}:{rabbitmq.password}@", f"{user}:x@")
    cases = {
        "": (printed.configure, printed.write, printed.read),
        "configure on queue 'worker.1.executions'": (
            printed.configure.replace("worker", "another"), printed.write, printed.read
        ),
        "write on exchange 'attune.executions'": (
            printed.configure, printed.write.replace("executions", "nothing"), printed.read
        ),
        "write on queue 'attune.dlx.queue'": (
            printed.configure, printed.write.replace(r"dlx\.queue", "nothing"), printed.read
        ),
        "read on queue 'attune.dlx.queue'": (
            printed.configure, printed.write, printed.read.replace(r"dlx\.queue", "nothing")
        ),
        "read on exchange 'attune.dlx'": (
            printed.configure, printed.write, printed.read.replace(r"attune\.dlx|", "nothing|")
        ),
    }  # fmt: skip
    await rabbitmq.ask("PUT", f"users/{user}", {"password": "x", "tags": "monitoring"})
    try:
        found = {}
        for right, (configure, write, read) in cases.items():
            permissions = {"configure": configure, "write": write, "read": read}
            await rabbitmq.ask("PUT", f"permissions/{vhost}/{user}", permissions)
            seen = await patient.examined(ATTUNE__MESSAGE_QUEUE__URL=url)
            found[right] = (ill(seen), seen["broker rights"].explanation)
    finally:
        await rabbitmq.ask("DELETE", f"users/{user}")

    assert found.pop("")[0] == without_replica(), "the printed rights are enough"
    assert {right: found_text for right, (_, found_text) in found.items()} == {
        right: f"The broker's user lacks {right}." for right in found
    }
    assert all(lines == without_replica(broker_rights=Health.PROBLEM) for lines, _ in found.values())


@pytest.mark.usefixtures("sidecar")
async def test_without_the_management_api_its_checks_are_unknown(patient: Patient) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    seen = await patient.examined(ATTUNE__DLQ_HANDLER__BROKER__MANAGEMENT_URL=nowhere)

    assert ill(seen) == dict.fromkeys(
        ("broker clock", "topology", "replicas", "canary", "other consumers", "worker restarts"),
        Health.UNKNOWN,
    )
    assert conclusion_of(seen.values()) is Health.UNKNOWN


async def test_a_broker_that_is_away_is_one_problem_and_the_database_is_examined_all_the_same(
    patient: Patient,
) -> None:
    nowhere = f"amqp://127.0.0.1:{free_port()}/"
    seen = await patient.examined(with_canary=True, ATTUNE__MESSAGE_QUEUE__URL=nowhere)

    problems = [check for check, health in ill(seen).items() if health is Health.PROBLEM]
    assert problems == ["broker"]
    assert {check for check, one in seen.items() if one.health is Health.OK} == {
        "settings", "database", "host tables", "own tables", "database rights", "clock", "workers",
        "worker clocks",
    }  # fmt: skip


async def test_a_database_that_is_away_is_one_problem_and_the_broker_is_examined_all_the_same(
    patient: Patient,
) -> None:
    nowhere = f"postgresql://127.0.0.1:{free_port()}/attune"
    seen = await patient.examined(with_canary=True, ATTUNE__DATABASE__URL=nowhere)

    problems = [check for check, health in ill(seen).items() if health is Health.PROBLEM]
    assert sorted(problems) == ["database", "replicas"]
    assert {check for check, one in seen.items() if one.health is Health.OK} == {
        "settings", "broker", "broker rights", "topology", "other consumers", "completions", "requests",
        "worker restarts",
    }  # fmt: skip


async def test_the_clock_of_a_broker_on_this_machine_is_not_called_behind(
    patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Date of the management API has whole seconds and may be a second old."""

    async def clock(_: ManagementApi) -> datetime:
        return datetime.now(UTC) - timedelta(seconds=1.9)

    monkeypatch.setattr(ManagementApi, "clock", clock)
    found = (await patient.examined())["broker clock"]

    assert found.health is Health.OK
    assert found.explanation == "The broker's clock is less than 3 s from the database's."


async def test_doctor_names_the_rule_that_applies_to_restarted_workers(patient: Patient) -> None:
    off = (await patient.examined(ATTUNE__DLQ_HANDLER__WORKER__RECONNECTS="true"))["worker restarts"]
    patient.environment["ATTUNE__DLQ_HANDLER__WORKER__RECONNECTS"] = "false"
    on = (await patient.examined())["worker restarts"]
    patient.environment["ATTUNE__DLQ_HANDLER__BROKER__MANAGEMENT_URL"] = f"http://127.0.0.1:{free_port()}"
    unseen = (await patient.examined())["worker restarts"]

    assert (off.health, on.health, unseen.health) == (Health.OK, Health.OK, Health.UNKNOWN)
    assert off.explanation.startswith("Not detected: dlq_handler.worker.reconnects is true")
    assert on.explanation.startswith("Detected by a new consumer connection")
    assert "300 s where it has none" in unseen.explanation


async def test_a_disabled_canary_and_disabled_dead_lettering_are_named(patient: Patient) -> None:
    no_canary = await patient.examined(with_canary=True, ATTUNE__DLQ_HANDLER__CANARY__ENABLED="false")
    no_letters = await patient.examined(
        with_canary=True, ATTUNE__MESSAGE_QUEUE__RABBITMQ__DEAD_LETTER__ENABLED="false"
    )

    assert ill(no_canary) == {"replicas": Health.PROBLEM}
    assert "canary" not in no_canary
    assert ill(no_letters) == {}
    assert no_letters.keys().isdisjoint({"canary", "replicas", "other consumers"})
    assert "dead_letter.enabled is false" in no_letters["settings"].evidence[0]


async def unbind(patient: Patient, worker_id: int) -> None:
    connection = await aio_pika.connect(patient.amqp_url)
    async with connection:
        channel = await connection.channel()
        queue = await channel.get_queue(INTAKE)
        await queue.unbind(topology.DLX, topology.dispatch_key(worker_id))
