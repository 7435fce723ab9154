"""How often the broker delivered a dead letter before, by headers that any client can write."""

from typing import Any

import pytest

from dlq_handler.broker.delivery import RawMessage
from dlq_handler.dead_letters.parse import read_dead_letter


def deliveries(headers: dict[str, Any], *, redelivered: bool = True) -> int:
    raw = RawMessage(
        exchange="attune.dlx",
        routing_key="execution.dispatch.worker.7",
        redelivered=redelivered,
        message_id="m",
        correlation_id=None,
        headers=headers,
        body=b"{}",
    )
    return read_dead_letter(raw, body_limit_bytes=1000).deliveries


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, 0),
        ({"x-delivery-count": 3}, 3),
        ({"x-delivery-count": 3, "x-acquired-count": 7}, 7),
        ({"x-acquired-count": 2}, 2),
        ({"x-delivery-count": True, "x-acquired-count": "9"}, 0),
        ({"x-delivery-count": -4, "x-acquired-count": 2**63}, 0),
        ({"x-delivery-count": 9.0, "x-acquired-count": [9]}, 0),
    ],
)
def test_the_larger_count_counts_if_it_is_one(headers: dict[str, Any], expected: int) -> None:
    assert deliveries(headers) == expected


def test_at_a_first_delivery_the_header_is_the_senders() -> None:
    assert deliveries({"x-delivery-count": 99}, redelivered=False) == 0
