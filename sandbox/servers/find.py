"""Find a RabbitMQ and a PostgreSQL to work with: the one that was named, else Docker, else one of our own.

Each server for itself, in this order: the variable (set but silent is an error: a typing mistake must not end
in another server), Docker, programs on this machine, Debian's packages. What is started is private and ends
with us.
"""

import os
from collections.abc import Awaitable, Callable
from functools import partial
from urllib.parse import urlsplit

import asyncpg

from sandbox.servers.docker import ContainedPostgreSQL, ContainedRabbitMQ
from sandbox.servers.errors import NoServer
from sandbox.servers.postgresql import PostgreSQL
from sandbox.servers.private_postgresql import PrivatePostgreSQL
from sandbox.servers.private_rabbitmq import PrivateRabbitMQ
from sandbox.servers.rabbitmq import RabbitMQ
from sandbox.servers.sources import PrintLine, first_available, print_on_stderr

AMQP_URL = "DLQ_TEST_AMQP_URL"
MANAGEMENT_URL = "DLQ_TEST_MANAGEMENT_URL"
DATABASE_URL = "DLQ_TEST_DATABASE_URL"
GIVEN_SECONDS = 10


async def find_rabbitmq(*, print_line: PrintLine = print_on_stderr) -> RabbitMQ:
    if url := os.environ.get(AMQP_URL):
        given = RabbitMQ(
            amqp_url=url, management_url=management_url_beside(url), origin=f"named by {AMQP_URL}"
        )
        try:
            await given.await_ready(GIVEN_SECONDS)
        except NoServer as silent:
            raise NoServer(
                f"{AMQP_URL} is set, but: {silent}. Start that server with its management plugin (where not "
                f"on port 15672, named by {MANAGEMENT_URL}), or unset the variable to have one started"
            ) from silent
        print_line(f"RabbitMQ: {given.origin}")
        return given
    ways: dict[str, Callable[[], Awaitable[RabbitMQ]]] = {
        "Docker": ContainedRabbitMQ.run,
        "this machine": PrivateRabbitMQ.of_this_machine,
        "packages": PrivateRabbitMQ.of_packages,
    }
    return await first_available("RabbitMQ", ways, variable=AMQP_URL, print_line=print_line)


async def find_postgresql(*, durable: bool = True, print_line: PrintLine = print_on_stderr) -> PostgreSQL:
    """`durable` matters only for one of our own: without it, it is quicker and must not be killed."""
    if url := os.environ.get(DATABASE_URL):
        given = PostgreSQL(url=url, origin=f"named by {DATABASE_URL}")
        try:
            await given.await_ready(GIVEN_SECONDS)
        except (NoServer, asyncpg.PostgresError) as silent:
            raise NoServer(
                f"{DATABASE_URL} is set, but: {silent}. Start that server, or unset the variable to have one "
                "started"
            ) from silent
        print_line(f"PostgreSQL: {given.origin}")
        return given
    ways: dict[str, Callable[[], Awaitable[PostgreSQL]]] = {
        "Docker": ContainedPostgreSQL.run,
        "this machine": partial(PrivatePostgreSQL.of_this_machine, durable=durable),
        "packages": partial(PrivatePostgreSQL.of_packages, durable=durable),
    }
    return await first_available("PostgreSQL", ways, variable=DATABASE_URL, print_line=print_line)


def management_url_beside(amqp_url: str) -> str:
    """Where the management plugin listens by default."""
    if url := os.environ.get(MANAGEMENT_URL):
        return url
    return f"http://{urlsplit(amqp_url).hostname or '127.0.0.1'}:15672"
