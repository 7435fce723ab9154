"""What "healthy" means for a part: it serves, seen from outside. Each check answers what is wrong, or nothing.

Asks servers and parts directly, for a program started at every look would cost more than the part itself.
"""

from collections.abc import Awaitable, Callable

import aiormq.exceptions
import httpx

from dlq_handler.sandbox.attune import topology
from dlq_handler.sandbox.attune.amqp import RPC_SECONDS, open_connection
from dlq_handler.sandbox.attune.database import DatabaseError, bare_connection

REQUEST_SECONDS = 5
Complain = Callable[[], Awaitable[str]]
"""Empty when all is well."""


def answering(url: str) -> Complain:
    """GET is answered with 200."""

    async def complain() -> str:
        try:
            # Unverified: reading the certificates takes longer than many a part's start; and no proxy is asked.
            async with httpx.AsyncClient(verify=False, trust_env=False, timeout=REQUEST_SECONDS) as client:  # noqa: S501 (plain http)
                answer = await client.get(url)
        except httpx.TransportError as silent:
            return f"{url} does not answer ({type(silent).__name__})"
        return "" if answer.status_code == httpx.codes.OK else f"{url} answers {answer.status_code}"

    return complain


def consuming(amqp_url: str, queue: str) -> Complain:
    """Somebody takes what comes into `queue`."""

    async def complain() -> str:
        try:
            async with await open_connection(amqp_url) as connection:
                channel = await connection.channel()
                declared = await channel.declare_queue(queue, passive=True, timeout=RPC_SECONDS)
        except aiormq.exceptions.ChannelNotFoundEntity:
            return f"{queue} does not exist"
        except (aiormq.exceptions.AMQPError, OSError, TimeoutError, RuntimeError) as away:
            return f"the broker does not answer ({type(away).__name__})"
        return "" if declared.declaration_result.consumer_count else f"nobody consumes {queue}"

    return complain


def working(amqp_url: str, database_url: str, name: str) -> Complain:
    """The worker has its row, active, and consumes its queue."""

    async def complain() -> str:
        try:
            async with bare_connection(database_url) as session:
                worker_id = await session.fetchval(
                    "SELECT id FROM attune.worker WHERE name = $1 AND status = 'active'", name
                )
        except (DatabaseError, OSError, TimeoutError) as away:
            return f"the database does not answer ({type(away).__name__})"
        if worker_id is None:
            return f"{name} is not registered as active"
        return await consuming(amqp_url, topology.worker_queue(worker_id))()

    return complain
