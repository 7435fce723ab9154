"""A body beyond the limit: its beginning is kept and read, the rest only hashed, and the letters behind it arrive."""

import json
import tracemalloc

from tests.integration.broker.conftest import SourceFactory
from tests.integration.broker.letterbox import Letterbox, execution_ids
from tests.support.builders import a_body

MEGABYTE = 1_000_000
# RabbitMQ 4 takes no more than 16 MiB.
LARGE = 15 * MEGABYTE


def a_large_dispatch(execution_id: int, size: int, end: bytes = b"") -> bytes:
    """As Attune sends one: config comes behind the ids. Its config is small values, which take most memory."""
    body = json.dumps(a_body(execution_id=execution_id, config="CONFIG"), separators=(",", ":")).encode()
    return body.replace(b'"CONFIG"', b"[" + b"[]," * (size // 3) + b"[]]") + end


async def test_of_a_large_body_only_the_beginning_is_ever_in_memory(
    letterbox: Letterbox, a_source: SourceFactory
) -> None:
    body = a_large_dispatch(7, LARGE)
    await letterbox.put(7, body=body)
    await letterbox.put(1, 2, 3)
    source = a_source(batch_size=4, batch_wait_seconds=60, max_body_bytes=MEGABYTE)
    await source.open()

    tracemalloc.start()
    try:
        batch = await source.next_batch(timeout_seconds=60)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 3 * MEGABYTE
    assert execution_ids(batch) == [7, 1, 2, 3]
    large = batch[0].item
    assert large.parse_error is None
    assert (large.message_type, large.worker_id, large.attempt_updated_at) == ("ExecutionRequested", 7, None)
    assert (large.body, large.body_size) == (body[:65_536], len(body))
    assert await source.acknowledge(batch) == 4


async def test_a_body_of_exactly_the_limit_is_read_whole(
    letterbox: Letterbox, a_source: SourceFactory
) -> None:
    body = a_large_dispatch(7, 300_000)
    await letterbox.put(7, body=body)
    await letterbox.put(8, body=body + b" ")
    source = a_source(batch_size=2, batch_wait_seconds=20, max_body_bytes=len(body))
    await source.open()

    whole, large = await source.next_batch(timeout_seconds=20)

    assert whole.item.attempt_updated_at is not None
    assert large.item.attempt_updated_at is None


async def test_the_key_of_a_large_body_is_that_of_the_whole(
    letterbox: Letterbox, a_source: SourceFactory
) -> None:
    """Two that differ in the last of many frames are two dead letters; one that comes again is the same."""
    for end in (b"", b" ", b""):
        await letterbox.put_bytes(b"\0\0", body=a_large_dispatch(7, 500_000, end))
    source = a_source(batch_size=3, batch_wait_seconds=20, max_body_bytes=100_000)
    await source.open()

    first, other, again = await source.next_batch(timeout_seconds=20)

    assert first.item.key == again.item.key != other.item.key
