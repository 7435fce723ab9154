"""What the pages remember while the database is away, and for how many pages."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from dlq_handler.dashboard.kept import Memory
from dlq_handler.errors import Unavailable

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


def answers(value: int) -> Callable[[], Awaitable[int]]:
    async def asked() -> int:
        return value

    return asked


async def is_away() -> int:
    raise Unavailable("database", "connection refused")


async def test_a_page_is_shown_from_memory_with_the_time_of_its_figures() -> None:
    memory = Memory()
    await memory.ask("/", answers(7), now=NOON)
    first = await memory.ask("/", is_away, now=NOON + timedelta(seconds=20))
    second = await memory.ask("/", is_away, now=NOON + timedelta(seconds=50))
    assert (first.facts, second.facts) == (7, 7)
    assert second.outage is not None
    assert (second.outage.kept_at, second.outage.since) == (NOON, NOON + timedelta(seconds=20))
    assert "connection refused" in second.outage.explanation


async def test_a_page_that_was_never_shown_has_nothing_to_show() -> None:
    shown = await Memory().ask("/", is_away, now=NOON)
    assert shown.facts is None
    assert shown.outage is not None
    assert shown.outage.kept_at is None


async def test_what_is_fresh_is_not_called_old() -> None:
    memory = Memory()
    await memory.ask("/", is_away, now=NOON)
    fresh = await memory.ask("/", answers(8), now=NOON)
    assert (fresh.facts, fresh.outage) == (8, None)
    again = await memory.ask("/", is_away, now=NOON + timedelta(hours=1))
    assert again.outage is not None
    assert again.outage.since == NOON + timedelta(hours=1)


async def test_of_many_pages_the_last_ones_are_kept() -> None:
    memory = Memory(most=2)
    for page in ("a", "b", "c"):
        await memory.ask(page, answers(1), now=NOON)
    assert (await memory.ask("a", is_away, now=NOON)).facts is None
    assert (await memory.ask("c", is_away, now=NOON)).facts == 1
