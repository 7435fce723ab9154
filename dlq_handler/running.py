"""Wait at start for the servers, run services side by side, and notice one that ends before it was asked to.

A service that returns, raises or is cancelled early is logged as `service.ended`. The others are then asked to stop, as
by SIGTERM: they finish the work in hand. At the end `ServiceEnded` is raised, which ends the process with an exit code,
so that the container runtime starts it again. Otherwise an intake that ended would hide behind a healthy process.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import structlog

from dlq_handler.clock import monotonic_seconds
from dlq_handler.errors import BrokerRightsMissing, Contended, ServiceEnded, StartTimedOut, Unavailable
from dlq_handler.loop import Backoff, pause

log = structlog.get_logger()

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


class Service(Protocol):
    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, end the work in hand, return. Never raises for a server that is away."""


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
        log.info("sidecar.stop_requested", grace_seconds=grace_seconds)
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
