"""Read rows of RabbitMQ's management API as facts. Pure.

A row of another shape, for example of a proxy, raises `KeyError`, `TypeError` or `ValueError`.
"""

import json
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from dlq_handler.broker.admin.snapshot import (
    TTL_ARGUMENT,
    BindingFacts,
    ConsumerFacts,
    ExchangeFacts,
    QueueFacts,
)

Policies = Mapping[str, Mapping[str, Any]]

_GAP = re.compile(r"[ \t\n\r]*")


def rows_of(content: bytes) -> Iterator[Mapping[str, Any]]:
    """The objects of a JSON list, one at a time. Raises `ValueError`.

    All rows of a large vhost at once take many times the memory of the facts that are kept of them.
    """
    text, decoder = content.decode(), json.JSONDecoder()

    def skip_gap(at: int) -> int:
        gap = _GAP.match(text, at)
        return at if gap is None else gap.end()

    at = skip_gap(0)
    if not text.startswith("[", at):
        raise ValueError("it is no list")
    at = skip_gap(at + 1)
    while not text.startswith("]", at):
        row, at = decoder.raw_decode(text, at)
        yield row
        at = skip_gap(at)
        if text.startswith(",", at):
            at = skip_gap(at + 1)
        elif not text.startswith("]", at):
            raise ValueError(f"a row of the list does not end at character {at}")


_NO_ARGUMENTS: Mapping[str, Any] = MappingProxyType({})


def mapping(value: object) -> Mapping[str, Any]:
    # Erlang encodes an empty table as an empty list. One object for all: thousands of bindings have none.
    return value if isinstance(value, Mapping) and value else _NO_ARGUMENTS


def read_exchange(row: Mapping[str, Any], policies: Policies) -> ExchangeFacts:
    policy = row.get("policy")
    return ExchangeFacts(
        name=row["name"],
        type=row["type"],
        arguments=mapping(row.get("arguments")),
        policy=policies.get(policy, {}) if policy else {},
        # A policy that was made or removed between two requests is unknown too.
        policy_is_known=not policy or policy in policies,
    )


def read_queue(row: Mapping[str, Any], policies: Policies, limits: Policies) -> QueueFacts:
    policy = row.get("policy")
    return QueueFacts(
        name=row["name"],
        type=row.get("type", "classic"),
        durable=row["durable"],
        auto_delete=bool(row["auto_delete"]),
        arguments=mapping(row.get("arguments")),
        policy={**(policies.get(policy, {}) if policy else {}), **limits.get(row["name"], {})},
        # A policy that was made or removed between two requests is unknown too.
        policy_is_known=not policy or policy in policies,
    )


def declared_ttl_ms(arguments: Mapping[str, object]) -> int | None:
    value = arguments.get(TTL_ARGUMENT)
    return value if isinstance(value, int) else None


def read_binding(row: Mapping[str, Any]) -> BindingFacts | None:
    """None: the default exchange's own, one for each queue. It routes by the name of the queue."""
    if row["source"] == "":
        return None
    return BindingFacts(
        source=row["source"],
        destination=row["destination"],
        to_exchange=row["destination_type"] == "exchange",
        routing_key=row["routing_key"],
        arguments=mapping(row.get("arguments")),
    )


def read_consumer(row: Mapping[str, Any], queue: str) -> ConsumerFacts:
    return ConsumerFacts(
        queue=queue,
        tag=row["consumer_tag"],
        connection=mapping(row.get("channel_details")).get("connection_name", ""),
    )
