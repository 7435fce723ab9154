"""Idle replicas beside a large fleet, and one idle replica beside a small one: what they cost, and whether they answer.

CPU is the CPU time of a process, divided by the wall clock: 100 % is one core. The broker's and the database's own load
is measured before the replicas start, with the same fleet, and only the difference counts.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from statistics import median

import httpx
import psutil
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.contender import Child, ContenderFailed
from benchmarks.fleet_world import fleet_stage, seconds_until_decided
from benchmarks.ours import opening, sidecar
from benchmarks.report import Bar
from benchmarks.world import Stage, World
from dlq_handler.app import Replica
from dlq_handler.cli.exits import EXIT_FAILED, EXIT_FINE, EXIT_UNKNOWN
from dlq_handler.logs import configure_logging
from dlq_handler.settings import load

STOCK = {"ATTUNE__DLQ_HANDLER__CANARY__ENABLED": "true"}
STATUS_RUNS = 5
LAG_METRIC = "dlq_handler_loop_lag_seconds_bucket"
SAMPLE_SECONDS = 0.5
DECIDED_LIMIT_SECONDS = 30.0
DECISIONS = 10
TICKS = 40
MEGABYTE = 1024 * 1024

MOST_BROKER_PERCENT = 10.0
MOST_REPLICA_PERCENT = 5.0
MOST_REPLICA_MEGABYTES = 150.0
MOST_LAG_SECONDS = 0.1
MOST_DECISION_SECONDS = 1.0
MOST_TICK_SECONDS = 0.02
MOST_IDLE_TRANSACTIONS = 3.0
MOST_IDLE_CONNECTIONS = 3
MOST_IDLE_PERCENT = 1.5
MOST_IDLE_MEGABYTES = 100.0
MOST_STATUS_SECONDS = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetExtent:
    workers: int = 5_000
    registered: int = 10_000
    settle_seconds: float = 60.0
    watch_seconds: float = 120.0


@dataclass(slots=True, kw_only=True)
class ReplicaCost:
    cpu_percent: float = 0.0
    megabytes: float = 0.0
    late: float = 0.0
    """Measurements of the event loop that were later than the bar."""
    measurements: float = 0.0
    machine_late: int = 0
    """How often the benchmark's own loop, which only waits, was later than the bar at the same time."""


@dataclass(slots=True, kw_only=True)
class FleetCourse:
    broker_before: float = 0.0
    broker_with: float = 0.0
    replicas: list[ReplicaCost] = field(default_factory=list)
    decided_seconds: list[float] = field(default_factory=list)
    tick_seconds: list[float] = field(default_factory=list)
    idle: ReplicaCost = field(default_factory=ReplicaCost)
    idle_transactions: float = 0.0
    idle_connections: int = 0
    status_seconds: list[float] = field(default_factory=list)


async def watch_fleet(world: World, extent: FleetExtent, print_line: Callable[[str], None]) -> FleetCourse:
    course = FleetCourse()
    await _watch_idle(world, extent, course, print_line)
    await _watch_replicas(world, extent, course, print_line)
    await _time_ticks(world, extent, course, print_line)
    return course


async def _watch_idle(
    world: World, extent: FleetExtent, course: FleetCourse, print_line: Callable[[str], None]
) -> None:
    """One replica with a few workers."""
    async with fleet_stage(world, workers=3, has_queues=True, print_line=print_line) as stage:
        before = await _transactions_per_second(stage, extent.watch_seconds / 2)
        async with sidecar(stage, **STOCK) as child:
            await opening(child)
            print_line(f"fleet: one idle replica settles, then is watched for {extent.watch_seconds:.0f} s")
            await asyncio.sleep(extent.settle_seconds / 2)
            course.idle_connections = await _connections(world, stage)
            async with asyncio.TaskGroup() as tasks:
                with_replica = tasks.create_task(_transactions_per_second(stage, extent.watch_seconds))
                tasks.create_task(_watch(child, course.idle, extent.watch_seconds))
            course.idle_transactions = with_replica.result() - before
            course.status_seconds = [await _time_status(stage) for _ in range(STATUS_RUNS)]
            course.idle_connections = max(course.idle_connections, await _connections(world, stage))


async def _time_status(stage: Stage) -> float:
    """`dlq-handler status` as an operator runs it: installed, so with byte code from the second run on."""
    environment = stage.environment(**STOCK) | {"PYTHONPYCACHEPREFIX": str(stage.folder / "byte-code")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    began = time.perf_counter()
    async with Child.run(
        ["dlq_handler", "status"], environment, stage.folder, stage.folder / "status.log"
    ) as child:
        code = await child.wait()
        seconds = time.perf_counter() - began
        if code not in (EXIT_FINE, EXIT_FAILED, EXIT_UNKNOWN):
            raise ContenderFailed(f"`dlq-handler status` ended with {code}:\n{child.log_tail()}")
    return seconds


async def _watch_replicas(
    world: World, extent: FleetExtent, course: FleetCourse, print_line: Callable[[str], None]
) -> None:
    broker = await _broker_process(world)
    async with fleet_stage(world, workers=extent.workers, has_queues=True, print_line=print_line) as stage:
        print_line(f"fleet: {extent.workers} workers; the broker is watched alone")
        await asyncio.sleep(extent.settle_seconds / 2)
        course.broker_before = await _cpu_percent(broker, extent.watch_seconds / 2)
        async with AsyncExitStack() as stack:
            replicas = [
                await stack.enter_async_context(sidecar(stage, log=f"sidecar-{number}.log", **STOCK))
                for number in (1, 2)
            ]
            for replica in replicas:
                await opening(replica)
            print_line(
                f"fleet: two replicas consume; they settle, then are watched for {extent.watch_seconds:.0f} s"
            )
            await asyncio.sleep(extent.settle_seconds)
            course.replicas = [ReplicaCost() for _ in replicas]
            async with asyncio.TaskGroup() as tasks:
                with_replicas = tasks.create_task(_cpu_percent(broker, extent.watch_seconds))
                for replica, cost in zip(replicas, course.replicas, strict=True):
                    tasks.create_task(_watch(replica, cost, extent.watch_seconds))
            course.broker_with = with_replicas.result()
            for _ in range(DECISIONS):
                seconds = await seconds_until_decided(stage, limit_seconds=DECIDED_LIMIT_SECONDS)
                course.decided_seconds.append(seconds)


async def _time_ticks(
    world: World, extent: FleetExtent, course: FleetCourse, print_line: Callable[[str], None]
) -> None:
    """Of the keeper, put together by the application itself, so that nothing is left out."""
    configure_logging(level="error", format="json")
    async with fleet_stage(
        world, workers=extent.registered, has_queues=False, print_line=print_line
    ) as stage:
        replica = Replica(load(None, stage.environment()).settings)
        print_line(
            f"fleet: {extent.registered} registered workers are bound, then the keeper's ticks are timed"
        )
        keeper = replica.keeper
        for number in range(TICKS + 2):
            began = time.perf_counter()
            await keeper.tick()
            if number >= 2:
                course.tick_seconds.append(time.perf_counter() - began)


async def _watch(child: Child, cost: ReplicaCost, seconds: float) -> None:
    process = psutil.Process(child.pid)
    late_before, all_before = await _lag_counts(child)
    began, cpu_began = time.monotonic(), _cpu_seconds(process)
    while time.monotonic() - began < seconds:
        if child.has_ended:
            raise ContenderFailed(f"a replica ended while it was watched:\n{child.log_tail()}")
        cost.megabytes = max(cost.megabytes, process.memory_info().rss / MEGABYTE)
        due_at = time.monotonic() + SAMPLE_SECONDS
        await asyncio.sleep(SAMPLE_SECONDS)
        cost.machine_late += time.monotonic() - due_at > MOST_LAG_SECONDS
    cost.cpu_percent = 100 * (_cpu_seconds(process) - cpu_began) / (time.monotonic() - began)
    late, total = await _lag_counts(child)
    cost.late, cost.measurements = late - late_before, total - all_before


async def _lag_counts(child: Child) -> tuple[float, float]:
    """Measurements of the event loop that were later than the bar, and all of them."""
    async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
        text = (await client.get(f"http://127.0.0.1:{_http_port(child)}/metrics")).text
    within = total = 0.0
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == LAG_METRIC and sample.labels["le"] == f"{MOST_LAG_SECONDS:g}":
                within = sample.value
            if sample.name == LAG_METRIC and sample.labels["le"] == "+Inf":
                total = sample.value
    return total - within, total


def _http_port(child: Child) -> int:
    for line in child.log.read_text(errors="replace").splitlines():
        if '"replica.started"' in line:
            return int(json.loads(line)["http_port"])
    raise ContenderFailed(f"the replica names no port:\n{child.log_tail()}")


async def _broker_process(world: World) -> psutil.Process:
    """Only on this machine: a process elsewhere cannot be measured."""
    [node] = (await world.servers.rabbitmq.ask("GET", "nodes?columns=os_pid")).json()
    try:
        process = psutil.Process(int(node["os_pid"]))
        if "beam" in process.name():
            return process
    except psutil.Error:
        pass
    raise ContenderFailed("the broker's CPU can be measured only for a broker that runs on this machine")


async def _cpu_percent(process: psutil.Process, seconds: float) -> float:
    began, cpu_began = time.monotonic(), _cpu_seconds(process)
    await asyncio.sleep(seconds)
    return 100 * (_cpu_seconds(process) - cpu_began) / (time.monotonic() - began)


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def _transactions_per_second(stage: Stage, seconds: float) -> float:
    began, before = time.monotonic(), await _transactions(stage)
    await asyncio.sleep(seconds)
    return (await _transactions(stage) - before) / (time.monotonic() - began)


async def _transactions(stage: Stage) -> int:
    async with stage.session() as session:
        count: int = await session.fetchval(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
        )
    return count


async def _connections(world: World, stage: Stage) -> int:
    vhost = stage.amqp_url.rpartition("/")[2]
    rows = (await world.servers.rabbitmq.ask("GET", f"vhosts/{vhost}/connections")).json()
    names = [row.get("client_properties", {}).get("connection_name", "") for row in rows]
    return sum(name.startswith("dlq-handler") for name in names)


def lines(course: FleetCourse, extent: FleetExtent) -> Iterator[str]:
    yield (
        f"broker with {extent.workers} workers: {course.broker_before:.1f} % of a core alone, "
        f"{course.broker_with:.1f} % with two idle replicas"
    )


def bars(course: FleetCourse, extent: FleetExtent) -> Iterator[Bar]:
    added = course.broker_with - course.broker_before
    yield _bar(
        f"broker's CPU for two idle replicas, {extent.workers} workers", added, MOST_BROKER_PERCENT, "%"
    )
    for number, cost in enumerate(course.replicas, start=1):
        name = f"replica {number} with {extent.workers} workers"
        yield _bar(f"{name}: CPU", cost.cpu_percent, MOST_REPLICA_PERCENT, "%")
        yield _bar(f"{name}: memory", cost.megabytes, MOST_REPLICA_MEGABYTES, "MB")
        # None at all, except where the machine keeps a process waiting that does nothing but wait.
        lag = f"{name}: event loop more than {MOST_LAG_SECONDS:g} s late"
        yield _bar(lag, cost.late, cost.machine_late, f"of {cost.measurements:.0f} measurements")
    yield _bar("slowest decision of a dead letter", max(course.decided_seconds), MOST_DECISION_SECONDS, "s")
    ticks = f"keeper's tick with {extent.registered} registered workers, median"
    yield _bar(ticks, 1000 * median(course.tick_seconds), 1000 * MOST_TICK_SECONDS, "ms")
    yield _bar("idle replica: transactions", course.idle_transactions, MOST_IDLE_TRANSACTIONS, "a second")
    yield _bar("idle replica: AMQP connections", course.idle_connections, MOST_IDLE_CONNECTIONS, "")
    yield _bar("idle replica: CPU", course.idle.cpu_percent, MOST_IDLE_PERCENT, "%")
    yield _bar("idle replica: memory", course.idle.megabytes, MOST_IDLE_MEGABYTES, "MB")
    yield _bar(
        "`dlq-handler status` beside it, median", median(course.status_seconds), MOST_STATUS_SECONDS, "s"
    )


def _bar(name: str, measured: float, most: float, unit: str) -> Bar:
    return Bar(f"{name}: {measured:.2f} {unit}".rstrip() + f"; at most {most:g}", measured <= most)
