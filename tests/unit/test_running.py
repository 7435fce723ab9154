"""A service that ends before it was asked to ends the process, whatever the reason; the others end in good order."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest
from structlog.testing import capture_logs

import dlq_handler.run
from dlq_handler.errors import ServiceEnded
from dlq_handler.run import running_services


class Doing:
    """A service that does what it is given."""

    def __init__(self, work: Callable[[asyncio.Event], Awaitable[None]]) -> None:
        self._work = work

    async def run(self, stop: asyncio.Event) -> None:
        await self._work(stop)


async def return_at_once(_: asyncio.Event) -> None:
    await asyncio.sleep(0)


async def fail(_: asyncio.Event) -> None:
    raise ValueError("a bug")


async def be_cancelled(_: asyncio.Event) -> None:
    task = asyncio.current_task()
    assert task
    task.cancel()
    await asyncio.sleep(0)


async def raise_cancelled(_: asyncio.Event) -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("work", "how"),
    [
        (return_at_once, "it returned"),
        (fail, "it raised ValueError: a bug"),
        (be_cancelled, "it was cancelled"),
        (raise_cancelled, "it was cancelled"),
    ],
)
async def test_the_others_are_asked_to_stop_and_finish(
    work: Callable[[asyncio.Event], Awaitable[None]], how: str
) -> None:
    finished = []

    async def finish(stop: asyncio.Event) -> None:
        await stop.wait()
        await asyncio.sleep(0)
        finished.append(True)

    async def run() -> None:
        async with running_services(asyncio.Event()) as services:
            services.start(Doing(finish), services.ending)
            services.start(Doing(work), services.ending)
            await services.ending.wait()
            await services.wait(services.ending)

    with pytest.raises(ServiceEnded) as ended:
        await asyncio.wait_for(run(), 20)
    assert (ended.value.service, ended.value.how, finished) == ("Doing", how, [True])


async def test_services_that_end_when_asked_to_are_fine() -> None:
    stop = asyncio.Event()

    async def work(asked: asyncio.Event) -> None:
        await asked.wait()

    async with running_services(stop) as services:
        services.start(Doing(work), services.ending)
        stop.set()
        await services.ending.wait()


async def test_an_error_after_the_stop_is_an_early_end_too() -> None:
    stop = asyncio.Event()

    async def work(asked: asyncio.Event) -> None:
        await asked.wait()
        raise ValueError("a bug")

    async def run() -> None:
        async with running_services(stop) as services:
            services.start(Doing(work), services.ending)
            stop.set()

    with pytest.raises(ServiceEnded, match="a bug"):
        await asyncio.wait_for(run(), 20)


async def test_services_that_do_not_end_are_cancelled_when_the_block_fails() -> None:
    cancelled = []

    async def work(_: asyncio.Event) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async def run() -> None:
        async with running_services(asyncio.Event()) as services:
            services.start(Doing(work), services.ending)
            await asyncio.sleep(0)
            raise TimeoutError

    with pytest.raises(TimeoutError):
        await run()
    assert cancelled == [True]


async def test_a_service_that_swallows_the_cancellation_sees_its_stop() -> None:
    async def work(asked: asyncio.Event) -> None:
        while not asked.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    async def run() -> None:
        async with running_services(asyncio.Event()) as services:
            services.start(Doing(work), asyncio.Event())
            await asyncio.sleep(0)
            raise TimeoutError

    async with asyncio.timeout(20):
        with pytest.raises(TimeoutError):
            await run()


async def test_a_service_that_does_not_end_is_named_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dlq_handler.run, "CANCEL_SECONDS", 0.05)
    release = asyncio.Event()
    ended = asyncio.Event()

    async def work(_: asyncio.Event) -> None:
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()
        ended.set()

    async def run() -> None:
        async with running_services(asyncio.Event()) as services:
            services.start(Doing(work), services.ending)
            await asyncio.sleep(0)
            raise TimeoutError

    with capture_logs() as logs:
        async with asyncio.timeout(20):
            with pytest.raises(TimeoutError):
                await run()
    release.set()
    await ended.wait()
    assert [(one["event"], one["services"]) for one in logs] == [("services.not_ended", ["Doing"])]
