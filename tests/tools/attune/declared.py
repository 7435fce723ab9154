"""Exchanges, queues and bindings of a vhost, by the management API."""

from typing import Any
from urllib.parse import quote, unquote, urlsplit

from sandbox.servers import RabbitMQ
from tests.support.topologies import without_default_type


async def declared_exchanges(rabbitmq: RabbitMQ, vhost: str) -> dict[str, str]:
    found = (await rabbitmq.ask("GET", f"exchanges/{_name_of(vhost)}")).json()
    own = [exchange for exchange in found if exchange["name"] and not exchange["name"].startswith("amq.")]
    assert all(one["durable"] and not one["auto_delete"] and not one["arguments"] for one in own)
    return {one["name"]: one["type"] for one in own}


async def declared_queues(
    rabbitmq: RabbitMQ, vhost: str
) -> dict[str, tuple[dict[str, Any], set[tuple[str, str]]]]:
    found = (await rabbitmq.ask("GET", f"queues/{_name_of(vhost)}")).json()
    bindings = (await rabbitmq.ask("GET", f"bindings/{_name_of(vhost)}")).json()
    assert all(one["durable"] and not one["auto_delete"] and not one["exclusive"] for one in found)
    return {
        one["name"]: (
            without_default_type(one["arguments"]),
            {
                (bound["source"], bound["routing_key"])
                for bound in bindings
                if bound["destination"] == one["name"] and bound["source"]
            },
        )
        for one in found
    }


async def consumers(rabbitmq: RabbitMQ, vhost: str) -> dict[str, tuple[str, int]]:
    """The tag and the prefetch of each queue's consumer."""
    found = (await rabbitmq.ask("GET", f"consumers/{_name_of(vhost)}")).json()
    return {one["queue"]["name"]: (one["consumer_tag"], one["prefetch_count"]) for one in found}


def _name_of(vhost: str) -> str:
    return quote(unquote(urlsplit(vhost).path.removeprefix("/")), safe="")
