"""A service on a loop of its own: it delays no other loop, its end is noticed, and calls across have a deadline."""

import asyncio
import threading
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import httpx
import pytest
import structlog
from starlette.responses import PlainTextResponse

from dlq_handler.errors import Unavailable
from dlq_handler.web.listeners import Listeners, WebServer
from dlq_handler.web.options import HttpOptions, UiOptions
from dlq_handler.web.own_thread import EndedEarly, OtherLoop, run_in_own_thread
from tests.support.eventually import eventually

WITHIN_SECONDS = 30


async def test_a_loop_that_is_blocked_blocks_no_other() -> None:
    stop, is_blocked, go_on = asyncio.Event(), threading.Event(), threading.Event()

    async def block(own_stop: asyncio.Event) -> None:
        is_blocked.set()
        # In the way of everything else on that loop, until this one has turned a hundred times.
        assert go_on.wait(WITHIN_SECONDS)
        await own_stop.wait()

    async with asyncio.TaskGroup() as group:
        group.create_task(run_in_own_thread(block, stop, name="blocked"))
        await eventually(is_blocked.is_set)
        for _ in range(100):
            await asyncio.sleep(0)
        go_on.set()
        stop.set()


async def test_the_listeners_answer_while_the_loop_of_the_services_is_blocked() -> None:
    listeners = Listeners(HttpOptions(host="127.0.0.1", port=0), UiOptions(enabled=False), connections=8)
    world = SimpleNamespace(
        services=SimpleNamespace(loop=OtherLoop()), stop=asyncio.Event(), database=Mock(dispose=AsyncMock())
    )
    app = PlainTextResponse("here")
    web, stop = WebServer(listeners, ops_app=app, ui_app=app, world=cast("Any", world)), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(web.run(stop))
        url = f"http://127.0.0.1:{listeners.ops.port}"
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=WITHIN_SECONDS) as client:
                await client.get(url)
            # This one blocks the loop of the test until it is answered.
            answer = httpx.get(url, trust_env=False, timeout=WITHIN_SECONDS)  # noqa: ASYNC210
        finally:
            stop.set()
    assert answer.text == "here"


async def test_it_ends_when_it_is_stopped() -> None:
    stop, ended = asyncio.Event(), threading.Event()

    async def serve(own_stop: asyncio.Event) -> None:
        await own_stop.wait()
        ended.set()

    async with asyncio.timeout(WITHIN_SECONDS), asyncio.TaskGroup() as group:
        group.create_task(run_in_own_thread(serve, stop, name="served"))
        await asyncio.sleep(0)
        assert not ended.is_set()
        stop.set()
    assert ended.is_set()


async def test_its_error_is_raised() -> None:
    async def fail(_stop: asyncio.Event) -> None:
        raise LookupError("there is none")

    with pytest.raises(LookupError, match="there is none"):
        await run_in_own_thread(fail, asyncio.Event(), name="failing")


async def test_a_loop_that_cannot_be_made_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """As without a free file descriptor."""

    def fail(main: Coroutine[None, None, None]) -> None:
        main.close()
        raise OSError("too many open files")

    async def serve(_stop: asyncio.Event) -> None:
        raise AssertionError("there is no loop")

    monkeypatch.setattr(asyncio, "run", fail)
    with pytest.raises(OSError, match="too many open files"):
        async with asyncio.timeout(WITHIN_SECONDS):
            await run_in_own_thread(serve, asyncio.Event(), name="failing")


async def test_an_end_that_was_not_asked_for_is_an_error() -> None:
    async def end(_stop: asyncio.Event) -> None:
        return

    with pytest.raises(EndedEarly):
        await run_in_own_thread(end, asyncio.Event(), name="ended")


async def test_its_log_records_name_the_replica_too() -> None:
    bound: dict[str, object] = {}

    async def look(_stop: asyncio.Event) -> None:
        bound.update(structlog.contextvars.get_contextvars())

    with structlog.contextvars.bound_contextvars(replica="one"), pytest.raises(EndedEarly):
        await run_in_own_thread(look, asyncio.Event(), name="logging")
    assert bound["replica"] == "one"


async def called_across(work: str, within_seconds: float) -> object:
    """The answer to a call out of another thread into this loop, or its error."""
    services, stop = OtherLoop(), asyncio.Event()
    services.bind(asyncio.get_running_loop())
    answers: list[object] = []

    async def answer() -> object:
        if work == "hang":
            await asyncio.Event().wait()
        if work == "fail":
            raise LookupError("there is none")
        return threading.current_thread()

    async def serve(own_stop: asyncio.Event) -> None:
        try:
            answers.append(await services.call(answer, within_seconds=within_seconds))
        except (LookupError, Unavailable) as error:
            answers.append(error)
        await own_stop.wait()

    async with asyncio.timeout(WITHIN_SECONDS), asyncio.TaskGroup() as group:
        group.create_task(run_in_own_thread(serve, stop, name="calling"))
        await eventually(lambda: bool(answers))
        stop.set()
    return answers[0]


async def test_a_call_runs_on_the_other_loop() -> None:
    assert await called_across("answer", WITHIN_SECONDS) is threading.current_thread()
    assert isinstance(await called_across("fail", WITHIN_SECONDS), LookupError)


async def test_a_call_that_hangs_is_given_up_and_cancelled_over_there() -> None:
    before = len(asyncio.all_tasks())
    error = await called_across("hang", 0.05)
    assert isinstance(error, Unavailable)
    assert "no answer within 0.05 s" in str(error)
    await eventually(lambda: len(asyncio.all_tasks()) <= before)


async def test_few_calls_are_under_way_at_once() -> None:
    services, under_way, most = OtherLoop(most_at_once=2), 0, 0
    services.bind(asyncio.get_running_loop())

    async def work() -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.001)
        under_way -= 1

    async with asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(services.call(work, within_seconds=WITHIN_SECONDS))
    assert most == 2
