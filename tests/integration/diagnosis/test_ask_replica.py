"""A command asks the replica beside it for its safety gate, by /readyz."""

import asyncio
import socket
from contextlib import ExitStack

import pytest

from dlq_handler.diagnosis.ask_replica import ask_for_gate
from dlq_handler.diagnosis.view import GateFact, Unknown, UnknownCause
from dlq_handler.errors import Unavailable
from dlq_handler.health import Readiness
from dlq_handler.rooms import new_metrics
from dlq_handler.safety.gate import GateCause
from dlq_handler.web.listeners import Listener, ops_app
from sandbox.servers.ports import free_port
from tests.support.eventually import eventually


async def test_a_sidecar_that_has_not_looked_does_not_say_that_its_gate_is_open() -> None:
    readiness, metrics, stop = Readiness(), new_metrics(), asyncio.Event()
    listener = Listener(host="127.0.0.1", port=0, setting="test")
    url = f"http://127.0.0.1:{listener.port}"

    async def is_serving() -> bool:
        try:
            return bool(await ask_for_gate(url))
        except Unavailable:
            return False

    async with asyncio.TaskGroup() as serving:
        serving.create_task(listener.run(stop, ops_app(readiness, metrics)))
        try:
            await eventually(is_serving)
            unlooked = await ask_for_gate(url)
            metrics.read_gate_from(lambda: dict.fromkeys(GateCause, False))
            open_gate = await ask_for_gate(url)
            metrics.read_gate_from(lambda: {GateCause.RECOVERY: True})
            closed = await ask_for_gate(url)
        finally:
            stop.set()

    why = "it has not checked the database yet, or not lately"
    assert unlooked == Unknown(f"the replica at {url} answers: {why}", UnknownCause.REPLICA_UNSURE)
    assert open_gate == GateFact(causes=[], replica=url)
    assert closed == GateFact(causes=[GateCause.RECOVERY], replica=url)


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
