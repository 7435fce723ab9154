"""However large the letters, no more is held than was allowed, and closing works in the middle of it."""

import psutil

from dlq_handler.broker.consumer import QueueConsumer
from dlq_handler.dead_letters.letter import DeadLetter
from tests.integration.broker.conftest import SourceFactory
from tests.integration.broker.letterbox import Letterbox
from tests.support.eventually import eventually

MEGABYTE = 1_000_000
LETTERS = 200


def resident_bytes() -> int:
    return int(psutil.Process().memory_info().rss)


def _has_stopped_reading(source: QueueConsumer[DeadLetter]) -> bool:
    return not (source._session and source._session._channel and source._session._channel.is_reading)


async def test_two_hundred_megabytes_of_letters_are_held_in_a_few(
    letterbox: Letterbox, a_source: SourceFactory
) -> None:
    body = b'{"pad": "' + b"x" * MEGABYTE + b'"}'
    await letterbox.put(*range(LETTERS), body=body)
    source = a_source(
        prefetch=LETTERS,
        batch_size=LETTERS,
        batch_wait_seconds=0.2,
        max_bytes=MEGABYTE,
    )
    before = resident_bytes()
    await source.open()

    await eventually(lambda: _has_stopped_reading(source))
    taken, most_held, most_resident = 0, 0, 0
    while taken < LETTERS:
        batch = await source.next_batch(timeout_seconds=20)
        most_held = max(most_held, source.held_bytes)
        most_resident = max(most_resident, resident_bytes() - before)
        assert source.outstanding < LETTERS, "the rest waits at the broker"
        taken += await source.acknowledge(batch)

    assert taken == LETTERS
    assert most_held < MEGABYTE + 100_000
    assert most_resident < 60 * MEGABYTE
    assert source.held_bytes == 0


async def test_closing_while_nothing_is_read_gives_the_letters_back(
    letterbox: Letterbox, a_source: SourceFactory
) -> None:
    await letterbox.put(*range(50), body=b'{"pad": "' + b"x" * MEGABYTE + b'"}')
    source = a_source(prefetch=50, max_bytes=200_000)
    await source.open()
    await eventually(lambda: _has_stopped_reading(source))
    assert (await source.count()).consumers == 1, "a look does not need the connection that is not read"

    await source.close()

    async def are_all_back() -> bool:
        return await letterbox.ready() == 50

    await eventually(are_all_back)
