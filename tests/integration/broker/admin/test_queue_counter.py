"""Queues counted in the background: what is said of them is known, and the broker refuses one question a minute."""

import asyncio
from collections.abc import Collection
from typing import Any, cast

import pytest

from dlq_handler.broker.admin import queue_counter
from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.queue_counter import QueueCounter
from dlq_handler.broker.admin.queue_probe import QueueCounts, count_until_refused
from dlq_handler.errors import Unavailable
from tests.integration.topology.broker_side import declare_queue, delete_queue

EMPTY = QueueCounts(ready=0, consumers=0)


class Questions:
    """What is asked of the broker, by a clock and a management API that the test owns."""

    def __init__(
        self, link: AdminConnection, monkeypatch: pytest.MonkeyPatch, asks_all_once: bool = False
    ) -> None:
        self.now, self.refused, self.lists = 1000.0, 0, 0
        self.listed: set[str] | None = None
        """What the management API lists; None: it does not answer."""
        self.queues = QueueCounter(
            link, api=cast("Any", self), asks_all_once=asks_all_once, now=lambda: self.now
        )
        monkeypatch.setattr(queue_counter, "count_until_refused", self.count_until_refused)

    async def queue_names(self) -> Collection[str]:
        self.lists += 1
        if self.listed is None:
            raise Unavailable("management API", "there is none")
        return self.listed

    async def count_until_refused(
        self, link: AdminConnection, queues: Collection[str], *, refusals: int
    ) -> tuple[dict[str, QueueCounts | None], list[str]]:
        counted, left = await count_until_refused(link, queues, refusals=refusals)
        self.refused += sum(counts is None for counts in counted.values())
        return counted, left


@pytest.fixture
def asked(link: AdminConnection, monkeypatch: pytest.MonkeyPatch) -> Questions:
    return Questions(link, monkeypatch)


WORKER_QUEUES = [f"worker.{number}.executions" for number in range(10)]


async def test_without_the_api_one_question_a_minute_is_refused_however_many_queues_are_missing(
    asked: Questions, link: AdminConnection
) -> None:
    names = [f"worker.{number}.executions" for number in range(30)]
    await declare_queue(link, names[7])
    for _ in range(10):
        before = asked.refused
        for _ in range(6):
            await asked.queues.count_all(names)
            asked.now += 10
        assert asked.refused - before <= 1
    assert (await asked.queues.count_all(names))[names[7]] == EMPTY


async def test_a_queue_is_missing_after_two_refusals_and_unknown_before_and_long_after(
    asked: Questions, link: AdminConnection
) -> None:
    assert await asked.queues.count_all(["gone"]) == {}
    with pytest.raises(Unavailable, match="unknown whether it exists"):
        await asked.queues.count("gone")
    asked.now += 61
    assert await asked.queues.count_all(["gone"]) == {"gone": None}
    # Asked about others meanwhile, so that nothing is left for this one.
    asked.now += 301
    assert await asked.queues.count_all(["gone too"]) == {}
    assert await asked.queues.count_all(["gone"]) == {}
    assert asked.refused == 3


async def test_a_queue_that_was_missing_is_found_within_a_minute_of_being_declared(
    asked: Questions, link: AdminConnection
) -> None:
    for _ in range(2):
        await asked.queues.count_all(["late"])
        asked.now += 61
    await declare_queue(link, "late")
    assert await asked.queues.count_all(["late"]) == {"late": EMPTY}
    await delete_queue(link, "late")
    assert await asked.queues.count_all(["late"]) == {"late": None}


async def test_with_the_api_existence_is_read_from_its_list_and_nothing_is_refused(
    asked: Questions, link: AdminConnection
) -> None:
    await declare_queue(link, "there")
    asked.listed = {"there"}
    for _ in range(20):
        assert await asked.queues.count_all(["gone", "there"]) == {"gone": None, "there": EMPTY}
        asked.now += 3
    await declare_queue(link, "gone")
    asked.listed = {"there", "gone"}
    asked.now += 5
    assert await asked.queues.count_all(["gone", "there"]) == {"gone": EMPTY, "there": EMPTY}
    assert asked.refused == 0


async def test_an_api_that_fails_is_left_alone_for_a_minute(asked: Questions, link: AdminConnection) -> None:
    for _ in range(12):
        await asked.queues.count_all(["gone"])
        asked.now += 5
    assert asked.lists == 1


async def test_a_command_asks_about_each_queue_once(
    link: AdminConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, names = Questions(link, monkeypatch, asks_all_once=True), [f"gone.{number}" for number in range(5)]
    for _ in range(5):
        assert await asked.queues.count_all(names) == dict.fromkeys(names)
        asked.now += 10
    assert asked.refused == 5


async def test_without_the_api_queues_that_are_deleted_at_once_leave_few_lines_in_the_log(
    asked: Questions, link: AdminConnection
) -> None:
    names = WORKER_QUEUES
    for name in names:
        await declare_queue(link, name)
    assert len(await asked.queues.count_all(names)) == 10
    asked.now += 61
    for name in names[1:]:
        await delete_queue(link, name)
    for _ in range(10):
        before = asked.refused
        for _ in range(6):
            await asked.queues.count_all(names)
            asked.now += 10
        assert asked.refused - before <= 3
    counted = await asked.queues.count_all(names)
    assert counted.pop(names[0]) == EMPTY
    assert set(counted.values()) == {None}


async def test_one_queue_that_is_deleted_makes_no_other_queue_unknown(
    asked: Questions, link: AdminConnection
) -> None:
    for name in ("deleted", "there"):
        await declare_queue(link, name)
    await asked.queues.count_all(["deleted", "there"])
    await delete_queue(link, "deleted")
    assert await asked.queues.count_all(["deleted", "there"]) == {"deleted": None, "there": EMPTY}


async def test_with_the_api_queues_that_are_deleted_at_once_are_read_from_its_list(
    asked: Questions, link: AdminConnection
) -> None:
    names = WORKER_QUEUES
    for name in names:
        await declare_queue(link, name)
    asked.listed = set(names)
    await asked.queues.count_all(names)
    for name in names[1:]:
        await delete_queue(link, name)
    asked.listed = {names[0]}
    assert await asked.queues.count_all(names) == {names[0]: EMPTY} | dict.fromkeys(names[1:])
    assert asked.refused <= 2


async def test_a_list_that_does_not_come_delays_no_question_about_a_queue_that_was_found(
    asked: Questions, link: AdminConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A firewall drops what is sent to the port of the management API."""
    is_listing, forever = asyncio.Event(), asyncio.Event()
    await declare_queue(link, "there")
    await asked.queues.count_all(["there"])
    asked.now += 61

    async def hang() -> Collection[str]:
        is_listing.set()
        await forever.wait()
        return ()

    monkeypatch.setattr(asked, "queue_names", hang)
    hangs = asyncio.create_task(asked.queues.count_all(["gone"]))
    await is_listing.wait()
    async with asyncio.timeout(10):
        assert await asked.queues.count("there") == EMPTY
    forever.set()
    await hangs


async def test_a_queue_that_the_broker_refuses_has_its_own_explanation(
    asked: Questions, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked.listed = {"refused"}

    async def refuse(*_: object, **__: object) -> tuple[dict[str, QueueCounts | None], list[str]]:
        return {}, []

    monkeypatch.setattr(queue_counter, "count_until_refused", refuse)
    assert await asked.queues.count_all(["refused"]) == {}
    assert asked.queues.unknown_explanation("refused") == queue_counter.REFUSED_QUEUE
    assert asked.queues.unknown_explanation("not asked") == queue_counter.UNKNOWN_QUEUE
    with pytest.raises(Unavailable, match="refuses access"):
        await asked.queues.count("refused")
