"""A command asks the replica beside it for its safety gate, by /readyz."""

import asyncio
import socket
from contextlib import ExitStack
from datetime import timedelta
from types import SimpleNamespace
from typing import cast

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dlq_handler.diagnosis.ask_replica import ask_for_gate
from dlq_handler.diagnosis.diagnoser import Diagnoser
from dlq_handler.diagnosis.view import GateFact, Unknown, UnknownCause
from dlq_handler.errors import Unavailable
from dlq_handler.health import Readiness
from dlq_handler.rooms import new_metrics
from dlq_handler.safety.gate import GateCause, GateState
from dlq_handler.safety.gate_service import Gate
from dlq_handler.web.listeners import Listener, ops_app
from sandbox.servers.ports import free_port
from tests.support.builders import NOON
from tests.support.eventually import eventually

HOUR = timedelta(hours=1)


async def test_a_replica_that_has_not_read_the_database_does_not_say_that_its_gate_is_open() -> None:
    gate, stop = (
        SimpleNamespace(state=GateState(causes={}, unknown_explanation="not read yet")),
        asyncio.Event(),
    )
    listener = Listener(host="127.0.0.1", port=0, setting="test")
    url = f"http://127.0.0.1:{listener.port}"
    app = ops_app(
        Readiness(), new_metrics(), cast("Gate", gate), cast("Diagnoser", SimpleNamespace(latest=None))
    )

    async def is_serving() -> bool:
        try:
            return bool(await ask_for_gate(url))
        except Unavailable:
            return False

    async with asyncio.TaskGroup() as serving:
        serving.create_task(listener.run(stop, app))
        try:
            await eventually(is_serving)
            unread = await ask_for_gate(url)
            gate.state = GateState(causes={})
            open_gate = await ask_for_gate(url)
            gate.state = GateState(
                causes={GateCause.RECOVERY: "a standby", GateCause.YOUNG_LINK: "connected for 3 s"},
                closed_at={GateCause.RECOVERY: NOON, GateCause.YOUNG_LINK: NOON - HOUR},
            )
            closed = await ask_for_gate(url)
        finally:
            stop.set()

    assert unread == Unknown(f"the replica at {url} answers: not read yet", UnknownCause.REPLICA_UNSURE)
    assert open_gate == GateFact(causes=(), replica=url)
    assert closed == GateFact(
        causes=(GateCause.RECOVERY, GateCause.YOUNG_LINK),
        explanation="a standby; connected for 3 s",
        since=NOON,
        replica=url,
    )


async def test_a_program_that_is_not_dlq_handler_is_not_taken_for_it() -> None:
    async def answer(_: object) -> Response:
        return JSONResponse({"ready": True})

    listener, stop = Listener(host="127.0.0.1", port=0, setting="test"), asyncio.Event()
    async with asyncio.TaskGroup() as serving:
        serving.create_task(listener.run(stop, Starlette(routes=[Route("/readyz", answer)])))
        try:
            with pytest.raises(Unavailable, match="not as this version of dlq-handler does"):
                await ask_for_gate(f"http://127.0.0.1:{listener.port}", timeout_seconds=20)
        finally:
            stop.set()


async def test_a_process_that_hangs_is_not_taken_for_no_process() -> None:
    """As one that was stopped by SIGSTOP: the kernel accepts the connection, and no answer comes."""

    async def stay_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(stay_silent, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        hung = await ask_for_gate(url, timeout_seconds=0.3)
    assert hung == Unknown(
        f"the process at {url} does not answer within 0.3 s: it hangs", UnknownCause.REPLICA_HANGS
    )

    nowhere = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(Unavailable, match=f"no process listens at {nowhere}"):
        await ask_for_gate(nowhere)


async def test_an_address_that_accepts_no_connection_is_not_called_a_hang() -> None:
    """As behind a firewall that drops packets: here the backlog is full, so the kernel drops the request to connect."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        address = listening.getsockname()
        # The kernel accepts one or two more than the backlog.
        for _ in range(4):
            filling = stack.enter_context(socket.socket())
            filling.setblocking(False)
            filling.connect_ex(address)
        with pytest.raises(Unavailable, match=r"no connection to http://127\.0\.0\.1:\d+ within 0\.3 s"):
            await ask_for_gate(f"http://127.0.0.1:{address[1]}", timeout_seconds=0.3)
