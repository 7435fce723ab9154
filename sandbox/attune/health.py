"""Is a part well, seen from outside? For health checks of a container: no file, no port beyond what it has anyway."""

import json
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, build_opener

from sandbox.attune import topology
from sandbox.attune.amqp import BROKER_AWAY, RPC_SECONDS, open_connection
from sandbox.attune.database import DATABASE_TROUBLE, Database
from sandbox.attune.environment import Environment

REQUEST_SECONDS = 5

_WORKER = """
SELECT id, status, extract(epoch FROM now() - last_heartbeat)::float8 AS age_seconds FROM worker WHERE name = $1
"""


class Unhealthy(Exception):
    """Says what is wrong."""


class WithoutBroker(Unhealthy):
    """It runs without a connection to a broker that answers: stock Attune never connects again (NO_RECONNECT)."""


class Inactive(Unhealthy):
    """The row of a worker that signed off, or was given up."""


def api_health(environment: Environment) -> str:
    """A sentence for people; raises Unhealthy."""
    host = "127.0.0.1" if environment.api_host == "0.0.0.0" else environment.api_host  # noqa: S104 (compared)
    url = f"http://{host}:{environment.api_port}/health"
    try:
        # A proxy of the environment must not come between us and our own host.
        with build_opener(ProxyHandler({})).open(url, timeout=REQUEST_SECONDS) as answer:
            json.load(answer)
    except HTTPError as error:
        body = error.read().decode(errors="replace")
        kind = WithoutBroker if '"broker":false' in body else Unhealthy
        raise kind(f"{url} answers {error.code}: {body}") from error
    except (URLError, OSError, ValueError) as error:
        raise Unhealthy(f"{url} does not answer: {error}") from error
    return f"{url} answers"


async def executor_health(environment: Environment) -> str:
    for queue in (topology.REQUESTS_QUEUE, topology.COMPLETED_QUEUE, topology.DLX_QUEUE):
        await _is_consumed(environment.amqp_url, queue)
    return "requests, completions and dead letters are consumed"


async def sensor_health(environment: Environment) -> str:
    await _is_consumed(environment.amqp_url, topology.EVENTS_QUEUE)
    return "events are consumed"


async def worker_health(environment: Environment, name: str) -> str:
    database = await Database.open(environment.database_url, environment.schema)
    try:
        row = await database.session.fetchrow(_WORKER, name)
    except DATABASE_TROUBLE as error:
        raise Unhealthy(f"the database does not answer: {type(error).__name__}: {error}") from error
    finally:
        await database.close()
    if row is None:
        raise Unhealthy(f"{name} is not registered")
    if row["status"] != "active":
        raise Inactive(f"worker {row['id']} ({name}) is {row['status']}")
    if row["age_seconds"] is None or row["age_seconds"] > environment.times.unavailable_after_seconds:
        raise Unhealthy(
            f"the last heartbeat of worker {row['id']} ({name}) is {row['age_seconds']:.0f} s old"
        )
    await _is_consumed(environment.amqp_url, topology.worker_queue(row["id"]))
    return f"worker {row['id']} ({name}) reports and consumes"


async def _is_consumed(amqp_url: str, queue: str) -> None:
    try:
        async with await open_connection(amqp_url) as connection:
            channel = await connection.channel()
            declared = await channel.declare_queue(queue, passive=True, timeout=RPC_SECONDS)
            consumers = declared.declaration_result.consumer_count
    except BROKER_AWAY as error:
        raise Unhealthy(f"cannot look at {queue}: {type(error).__name__}: {error}") from error
    if not consumers:
        raise WithoutBroker(f"{queue} has no consumer")
