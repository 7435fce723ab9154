"""A group has one name, on whatever page: its worker was gone around its newest letter, or it was not."""

from datetime import datetime, timedelta

import pytest

from dlq_handler.dead_letters.group import Category, Group, title_in
from dlq_handler.history.history import Segment, Timeline
from dlq_handler.workers.availability import Availability
from tests.support.builders import NOON

MINUTE = timedelta(minutes=1)
TTL_SECONDS = 300.0
GROUP = Group(
    id="0",
    category=Category.NOT_TAKEN,
    reason="expired",
    queue="worker.7.executions",
    detail=None,
    worker_id=7,
    first_at=NOON,
    last_at=NOON,
    letters=1,
    failed=1,
    actions=(),
    more_actions=0,
)


def gone(since: datetime, until: datetime) -> list[Timeline]:
    segment = Segment(since=since, until=until, availability=Availability.UNAVAILABLE)
    return [Timeline(worker_id=7, name="worker-python", segments=(segment,))]


@pytest.mark.parametrize(
    ("since", "until"),
    [(-4, -1), (-60, 60), (0.5, 30)],
    ids=["back before it expired", "gone all along", "called gone after it expired"],
)
def test_a_worker_that_was_gone_while_its_letters_waited_is_the_cause(since: float, until: float) -> None:
    timelines = gone(NOON + since * MINUTE, NOON + until * MINUTE)
    assert title_in(GROUP, timelines, {}, ttl_seconds=TTL_SECONDS) == "Worker gone: worker-python"


def test_a_worker_that_was_gone_at_another_time_is_not() -> None:
    timelines = gone(NOON - 50 * MINUTE, NOON - 40 * MINUTE)
    assert title_in(GROUP, timelines, {}, ttl_seconds=TTL_SECONDS) == "Not taken in time: worker-python"


def test_of_a_stretch_of_time_its_own_newest_letter_counts() -> None:
    timelines = gone(NOON - 50 * MINUTE, NOON - 40 * MINUTE)
    assert (
        title_in(GROUP, timelines, {}, ttl_seconds=TTL_SECONDS, last_at=NOON - 45 * MINUTE)
        == "Worker gone: worker-python"
    )


@pytest.mark.parametrize(
    ("ttl_seconds", "title"), [(60.0, "Not taken in time"), (3600.0, "Worker gone")], ids=["short", "long"]
)
def test_how_long_its_letters_waited_is_the_ttl_as_configured(ttl_seconds: float, title: str) -> None:
    gone_before = gone(NOON - 30 * MINUTE, NOON - 8 * MINUTE)
    assert title_in(GROUP, gone_before, {}, ttl_seconds=ttl_seconds) == f"{title}: worker-python"
    gone_later = gone(NOON + 3 * MINUTE, NOON + 9 * MINUTE)
    assert title_in(GROUP, gone_later, {}, ttl_seconds=ttl_seconds) == "Not taken in time: worker-python"
