"""An idle replica leaves the broker's log alone, whatever the fleet and whatever the management API says."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

import pytest
import pytest_asyncio

from dlq_handler.settings import Settings, load
from sandbox.attune.topology import verify_redeclare
from sandbox.servers import PrivateRabbitMQ
from sandbox.servers.ports import free_port
from tests.support.driven import driven_sidecar
from tests.support.host_tables import Host

LINES_PER_MINUTE = 6
MINUTES = 2
WORKERS = 20
# Each of them asks the broker about queues, again and again.
ASKING_LOOPS = {
    "worker-watch",
    "service-watch",
    "completion-watch",
    "diagnoser",
    "unscheduled-watch",
    "reconciler",
    "timeout-monitor",
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def rabbitmq() -> AsyncIterator[PrivateRabbitMQ]:
    """A broker of this module alone: its log must hold nothing that others did."""
    async with await PrivateRabbitMQ.launch() as server:
        yield server


@dataclass(kw_only=True)
class World:
    rabbitmq: PrivateRabbitMQ
    amqp_url: str
    database_url: str
    host: Host

    async def register_workers(self, *, with_queues: bool) -> None:
        """Without queues neither the workers nor the executor have declared any."""
        workers = [await self.host.add_worker() for _ in range(WORKERS)]
        if with_queues:
            await verify_redeclare(self.amqp_url, dict.fromkeys(workers, 300_000))

    def settings(self, api: str) -> Settings:
        parts = urlsplit(self.rabbitmq.management_url)
        user = self.rabbitmq.user if api == "API" else "stranger"
        netloc = (
            f"127.0.0.1:{free_port()}"
            if api == "no API"
            else f"{user}:{self.rabbitmq.password}@{parts.netloc}"
        )
        environment = {
            "ATTUNE__MESSAGE_QUEUE__URL": self.amqp_url,
            "ATTUNE__DATABASE__URL": self.database_url,
            "ATTUNE__DLQ_HANDLER__BROKER__MANAGEMENT_URL": urlunsplit((parts.scheme, netloc, "", "", "")),
            "ATTUNE__DLQ_HANDLER__HTTP__PORT": str(free_port()),
            "ATTUNE__DLQ_HANDLER__UI__PORT": str(free_port()),
        }
        return load(None, environment).settings

    def lines(self, level: str) -> int:
        """Lines of this level in the broker's log."""
        log = self.rabbitmq.log.read_text()
        return len(re.findall(rf"^\S+ \S+ \[{level}\]", log, flags=re.MULTILINE))


@pytest.fixture
async def world(rabbitmq: PrivateRabbitMQ, vhost: str, database: str, host: Host) -> World:
    return World(rabbitmq=rabbitmq, amqp_url=vhost, database_url=database, host=host)


@pytest.mark.parametrize(
    ("api", "with_queues"),
    [("API", False), ("no API", True), ("refused by the API", False)],
    ids=["API, no queues", "no API, queues", "refused by the API, no queues"],
)
async def test_an_idle_replica_writes_next_to_nothing_into_the_log_of_the_broker(
    world: World, monkeypatch: pytest.MonkeyPatch, api: str, with_queues: bool
) -> None:
    await world.register_workers(with_queues=with_queues)
    errors, warnings = [], []
    async with driven_sidecar(world.settings(api), monkeypatch) as sidecar:
        for _ in range(MINUTES):
            before = world.lines("error"), world.lines("warning")
            await sidecar.live(60)
            errors.append(world.lines("error") - before[0])
            warnings.append(world.lines("warning") - before[1])
        assert sidecar.ticks > MINUTES * 60, "too few ticks for what a replica does in that time"
        assert sidecar.loops.keys() >= ASKING_LOOPS
    print(f"error lines a minute: {errors}, warnings: {warnings}")
    assert max(errors) <= LINES_PER_MINUTE, (errors, warnings)
    assert max(warnings) <= LINES_PER_MINUTE, (errors, warnings)
