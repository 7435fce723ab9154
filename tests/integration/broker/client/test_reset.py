"""A connection that is dropped takes back what the peer has not read yet."""

import asyncio
import socket

import pytest
from yarl import URL

from dlq_handler.broker.client.connection import _SocketKeeper


@pytest.mark.parametrize("is_reset", [False, True])
async def test_after_a_reset_the_kernel_sends_nothing_more(*, is_reset: bool) -> None:
    """A plain close leaves what was written to the kernel, which goes on sending it: an unbind could arrive minutes
    later, after another leader has bound the queue again.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        # A small window: most of what is written waits in the sender's kernel.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        server.setblocking(False)
        loop, keeper = asyncio.get_running_loop(), _SocketKeeper()
        opening = asyncio.create_task(
            keeper.create(URL(f"amqp://127.0.0.1:{server.getsockname()[1]}"), limit=2**16)
        )
        peer, _ = await loop.sock_accept(server)
        _, writer = await opening
        writer.write(b"x" * 50_000_000)
        sent = 50_000_000 - writer.transport.get_write_buffer_size()
        keeper.reset() if is_reset else keeper.abort()
        # asyncio closes the socket in its next turn.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

        received = 0
        with peer:
            peer.setblocking(False)
            try:
                while chunk := await loop.sock_recv(peer, 65_536):
                    received += len(chunk)
            except ConnectionResetError:
                pass
    assert (received < sent) is is_reset
