"""The executor as a process: its consumers, its dead-letter handler and its two monitors, on one pool."""

import asyncio

from sandbox.attune.completion_listener import CompletionListener
from sandbox.attune.database import Database
from sandbox.attune.dead_letter_handler import StockDeadLetterHandler
from sandbox.attune.environment import Environment
from sandbox.attune.execution_manager import ExecutionManager
from sandbox.attune.executor import StockExecutor
from sandbox.attune.heartbeat_monitor import HeartbeatMonitor
from sandbox.attune.ignored_messages import IgnoringListener
from sandbox.attune.log_line import PrintLine
from sandbox.attune.scheduler import Scheduler
from sandbox.attune.service import Wiring
from sandbox.attune.timeout_monitor import StockTimeoutMonitor

# How long Attune's pool lets a statement wait for a server that is away.
PATIENCE_SECONDS = 30.0


async def run_executor(environment: Environment, stop: asyncio.Event, print_line: PrintLine) -> None:
    times = environment.times
    servers = environment.amqp_url, environment.database_url
    database = await Database.open(
        environment.database_url, environment.schema, max_size=8, patience_seconds=PATIENCE_SECONDS
    )
    wiring = Wiring(
        pool=database,
        cured=environment.cured,
        print_line=print_line,
        connection_name="executor",
        amqp_heartbeat_seconds=times.amqp_heartbeat_seconds,
    )
    link = StockExecutor(*servers, **wiring)
    scheduler = Scheduler(
        *servers,
        heartbeat_fresh_seconds=times.unavailable_after_seconds,
        reclaim_after_seconds=times.reclaim_after_seconds,
        **wiring,
    )
    listeners = (
        CompletionListener(*servers, **wiring),
        StockDeadLetterHandler(*servers, **wiring),
        ExecutionManager(*servers, **wiring),
        IgnoringListener(*servers, **wiring),
    )
    heartbeats = HeartbeatMonitor(
        database,
        check_seconds=times.heartbeat_check_seconds,
        unavailable_after_seconds=times.unavailable_after_seconds,
        print_line=print_line,
    )
    try:
        async with asyncio.TaskGroup() as tasks:
            for service in (link, scheduler, *listeners, heartbeats):
                tasks.create_task(service.run(stop), name=type(service).__name__)
            if environment.is_monitored:
                monitor = StockTimeoutMonitor(
                    database,
                    link.publish,
                    link.may_still_take,
                    times=times,
                    scheduled_timeout_seconds=environment.scheduled_timeout_seconds,
                    check_seconds=environment.check_seconds,
                    cured=environment.cured,
                    print_line=print_line,
                )
                tasks.create_task(monitor.run(stop), name="StockTimeoutMonitor")
    finally:
        await database.close()
