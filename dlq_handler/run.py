"""Run one replica: `dlq-handler run`, and `health`, which container runtimes call.

The listeners end last, so that probes are answered until everything else has ended. A service that returns, raises or
is cancelled early is logged as `service.ended`. The others are then asked to stop, as by SIGTERM: they finish the work
in hand. At the end `ServiceEnded` is raised, which ends the process with an exit code, so that the container runtime
starts it again. Otherwise an intake that ended would hide behind a healthy process.
"""

import asyncio
import gc
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager

import structlog
import typer

from dlq_handler import __version__
from dlq_handler.app import Replica
from dlq_handler.cli.config import load_or_exit
from dlq_handler.cli.exits import EXIT_CONFIG, EXIT_FAILED, EXIT_SERVICE_ENDED, EXIT_UNAVAILABLE
from dlq_handler.cli.health import check_health
from dlq_handler.cli.options import ConfigOption
from dlq_handler.clock import monotonic_seconds
from dlq_handler.database import migrate
from dlq_handler.errors import (
    BrokerRightsMissing,
    Contended,
    ServiceEnded,
    StartTimedOut,
    Unavailable,
    UnsupportedLibrary,
)
from dlq_handler.logs import configure_logging
from dlq_handler.loop import Backoff, Service, pause
from dlq_handler.settings import Settings
from dlq_handler.tasks import task_group
from dlq_handler.web.listeners import ListenerRefused

log = structlog.get_logger()


def run(config: ConfigOption = None) -> None:
    """Run a replica until SIGTERM or SIGINT. A second signal ends it at once; nothing is lost either way."""
    loaded = load_or_exit(config)
    own = loaded.settings.dlq_handler
    configure_logging(level=own.log.level, format=own.log.format)
    structlog.contextvars.bind_contextvars(replica=loaded.settings.replica)
    if own.shadow.enabled:
        # On every line: a decision that is logged is what would have been done.
        structlog.contextvars.bind_contextvars(shadow=True)
    for warning in loaded.warnings:
        log.warning("settings.warning", warning=warning)
    raise typer.Exit(asyncio.run(_run(loaded.settings)))


def health(config: ConfigOption = None) -> None:
    """Check that every loop of the replica in this container runs (exit code 0 or 1). For the servers see /readyz."""
    raise typer.Exit(check_health(config))


async def _run(settings: Settings) -> int:
    stop = asyncio.Event()
    _listen_for_signals(stop)
    try:
        replica = Replica(settings)
    except ListenerRefused as refused:
        log.error(
            "listener.refused",
            host=refused.host,
            port=refused.port,
            error=refused.explanation,
            setting=refused.setting,
        )
        return EXIT_CONFIG
    except UnsupportedLibrary as error:
        log.error(
            "library.unsupported",
            library=error.library,
            version=error.version,
            missing=error.missing,
            required=error.required,
        )
        return error.exit_code
    # What was imported and constructed lives as long as the process. Without this, each full collection goes through
    # all of it, and holds the event loop for a tenth of a second.
    gc.collect()
    gc.freeze()
    # Each view of a large fleet is tens of thousands of new objects, without cycles. By default it starts several full
    # collections, which find nothing.
    gc.set_threshold(700, 10, 50)
    try:
        await run_replica(replica, stop)
    except* StartTimedOut as group:
        waited_for = "; ".join(str(one) for one in group.exceptions)
        log.error("start.timed_out", error=waited_for, setting="dlq_handler.startup.wait_seconds")
        return_code = EXIT_UNAVAILABLE
    except* ServiceEnded:
        # Logged when it happened, with its trace.
        return_code = EXIT_SERVICE_ENDED
    except* TimeoutError:
        log.error("replica.stop_timed_out", setting="dlq_handler.grace.shutdown_seconds")
        return_code = EXIT_FAILED
    else:
        return_code = 0
    return return_code


async def run_replica(replica: Replica, stop: asyncio.Event) -> None:
    """Returns when everything has ended in good order."""
    ops, ui = replica.listeners.ops, replica.listeners.ui
    log.info("replica.started", version=__version__, http_port=ops.port, ui_port=ui.port if ui else None)
    if replica.settings.is_shadow:
        _report_shadow(replica)
    rest_done = asyncio.Event()
    async with running_services(stop) as services:
        services.start(replica.web, rest_done)
        try:
            await _prepare(replica, services.ending)
            # Stopped while it waited for its servers: no work was taken, so there is none to finish.
            if not services.ending.is_set():
                replica.readiness.liveness.watch()
                await services.serve(
                    first_to_end=replica.services_that_end_first(),
                    last_to_end=replica.services_that_end_last(),
                    grace_seconds=replica.settings.dlq_handler.grace.shutdown_seconds,
                )
        finally:
            rest_done.set()
            await _close(replica)
    log.info("replica.stopped")


def _report_shadow(replica: Replica) -> None:
    queue = replica.settings.dlq_handler.shadow.queue
    log.warning("shadow.started", queue=queue, setting="dlq_handler.shadow.enabled")
    replica.metrics.shadow.set(1)


async def _prepare(replica: Replica, stop: asyncio.Event) -> None:
    """Check what every service relies on, in the order in which it is needed, before anything is consumed."""
    wait_until = monotonic_seconds() + replica.settings.dlq_handler.startup.wait_seconds
    await wait_until_available(lambda: migrate.upgrade(replica.database), wait_until, stop)
    # Bound before ready: a dead letter whose key is not bound yet is lost without a trace.
    await wait_until_available(replica.keeper.tick, wait_until, stop)


async def _close(replica: Replica) -> None:
    """Side by side: each may wait seconds for a server that does not answer, and SIGTERM allows for one wait."""
    async with task_group() as closing:
        for close in (replica.publisher.close, replica.link.close, replica.database.dispose):
            closing.create_task(close())


def _listen_for_signals(stop: asyncio.Event) -> None:
    def handle(number: int) -> None:
        if stop.is_set():
            # A second signal means now. The broker delivers unacknowledged dead letters again.
            os._exit(128 + number)
        log.info("signal.received", signal=signal.Signals(number).name)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, handle, number)


# How long a cancelled service may take to end. It is cancelled twice: a library may swallow the first cancellation.
CANCEL_SECONDS = 2.5
CANCEL_TIMES = 2


async def wait_until_available(
    attempt: Callable[[], Coroutine[None, None, object]], wait_until: float, stop: asyncio.Event
) -> None:
    """Try to reach a server until it answers, or `stop` is set. Raises `StartTimedOut`."""
    backoff = Backoff(first_seconds=0.25, most_seconds=2.0)
    while not stop.is_set():
        try:
            await _unless_stopped(attempt(), stop)
        except (Unavailable, Contended) as error:
            if monotonic_seconds() >= wait_until:
                raise StartTimedOut(str(error)) from error
            if isinstance(error, BrokerRightsMissing):
                log.warning("start.refused", error=str(error))
            else:
                log.info("start.delayed", error=str(error))
            await pause(stop, backoff.next_seconds())
        else:
            return


async def _unless_stopped(attempt: Coroutine[None, None, object], stop: asyncio.Event) -> None:
    """Nothing is in hand yet at start, so there is nothing to finish: a server that hangs must not hold up SIGTERM."""

    async def end_at_stop() -> None:
        await stop.wait()
        limit.reschedule(asyncio.get_running_loop().time())

    limit = asyncio.timeout(None)
    try:
        async with limit:
            watching = asyncio.ensure_future(end_at_stop())
            try:
                await attempt
            finally:
                watching.cancel()
    except TimeoutError:
        if not limit.expired():
            raise


class RunningServices:
    def __init__(self) -> None:
        self.ending = asyncio.Event()
        """Set when the process was asked to stop, or a service has ended early."""
        self._stops: dict[asyncio.Task[None], asyncio.Event] = {}
        self._early: ServiceEnded | None = None
        self._is_cancelling = False

    def start(self, service: Service, stop: asyncio.Event) -> None:
        """`stop` asks this service to end. Before it is set, its end is an error."""
        task = asyncio.create_task(service.run(stop), name=type(service).__name__)
        self._stops[task] = stop
        task.add_done_callback(self._note_end)

    async def serve(
        self, *, first_to_end: Sequence[Service], last_to_end: Sequence[Service], grace_seconds: float
    ) -> None:
        """Run both groups until the process is asked to stop, then end one after the other. Raises `TimeoutError`."""
        first_ended = asyncio.Event()
        for service in last_to_end:
            self.start(service, first_ended)
        for service in first_to_end:
            self.start(service, self.ending)
        await self.ending.wait()
        log.info("replica.stop_requested", grace_seconds=grace_seconds)
        async with asyncio.timeout(grace_seconds):
            await self.wait(self.ending)
            first_ended.set()
            await self.wait(first_ended)

    async def wait(self, stop: asyncio.Event | None = None) -> None:
        """Until every service has ended, or every one that was started with this event."""
        if tasks := [task for task, its_stop in self._stops.items() if stop is None or its_stop is stop]:
            await asyncio.wait(tasks)

    async def cancel(self) -> None:
        """End what still runs, at once. A service that does not end is logged and left to the end of the process."""
        self._is_cancelling = True
        # All of them first: a loop whose cancellation was swallowed ends by its event.
        for stop in self._stops.values():
            stop.set()
        left = {task for task in self._stops if not task.done()}
        for _ in range(CANCEL_TIMES):
            for task in left:
                task.cancel()
            if left:
                _, left = await asyncio.wait(left, timeout=CANCEL_SECONDS)
        if left:
            log.error("services.not_ended", services=sorted(task.get_name() for task in left))

    def check(self) -> None:
        """Raises `ServiceEnded` when a service has ended early."""
        if self._early is not None:
            raise self._early

    def _note_end(self, task: asyncio.Task[None]) -> None:
        how, error = "it returned", None
        if task.cancelled():
            if self._is_cancelling:
                return
            how = "it was cancelled"
        elif (error := task.exception()) is not None:
            how = f"it raised {type(error).__name__}: {error}"
        elif self._stops[task].is_set():
            return
        ended = ServiceEnded(task.get_name(), how)
        log.error("service.ended", service=ended.service, how=how, exit_code=ended.exit_code, exc_info=error)
        self._early = self._early or ended
        self.ending.set()


@asynccontextmanager
async def running_services(stop: asyncio.Event) -> AsyncIterator[RunningServices]:
    """Services that are started in the block are over at its end. Raises `ServiceEnded`."""
    services = RunningServices()

    async def pass_on() -> None:
        await stop.wait()
        services.ending.set()

    passing_on = asyncio.create_task(pass_on())
    try:
        yield services
        await services.wait()
    finally:
        passing_on.cancel()
        await services.cancel()
        # First, also where the others did not end in time because of it.
        services.check()
