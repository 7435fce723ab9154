"""The deliveries of one channel: in which order they are taken, when the window is full, what acknowledging removes."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from hypothesis.strategies import DataObject, data, floats, integers, lists, none, sets

from dlq_handler.broker.delivery import AckPlan, Delivery, plan_acks
from dlq_handler.broker.delivery_window import DeliveryWindow

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class AnItem:
    order_key: int | None = 1
    held_bytes: int = 100
    died_at: datetime | None = NOON
    is_canary: bool = False


def a_window(*, prefetch: int = 100, max_bytes: int = 1_000_000, letters: int = 0) -> DeliveryWindow[AnItem]:
    window = DeliveryWindow[AnItem](incarnation=1, prefetch=prefetch, max_bytes=max_bytes)
    for tag in range(1, letters + 1):
        window.add(tag, AnItem(order_key=tag))
    return window


def tags(deliveries: list[Delivery[AnItem]]) -> list[int]:
    return [delivery.tag for delivery in deliveries]


def test_letters_are_given_once_and_in_order_of_arrival() -> None:
    window = a_window(letters=5)

    assert tags(window.take(3, now=0)) == [1, 2, 3]
    assert tags(window.take(3, now=0)) == [4, 5]


def test_a_letter_postponed_comes_again_before_later_ones_when_it_is_due() -> None:
    window = a_window(letters=4)
    first, second = window.take(2, now=0)
    window.postpone([second, first], until=10)

    assert tags(window.take(1, now=9)) == [3]
    assert window.next_due() == 10
    assert tags(window.take(10, now=10)) == [1, 2, 4]


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_more_postponed_dead_letters_of_one_execution_than_fit_a_batch_are_all_given_again(
    limit: int,
) -> None:
    window = DeliveryWindow[AnItem](incarnation=1, prefetch=100, max_bytes=1_000_000)
    count = limit + 1
    for tag in range(1, count + 1):
        window.add(tag, AnItem(order_key=7))
    window.postpone(window.take(count, now=0), until=10)

    given = []
    for look in range(1, 2 * count):
        batch = window.take(limit, now=10 + look)
        given += tags(batch)
        window.remove(batch)

    assert given == list(range(1, count + 1))


def test_a_younger_dead_letter_that_is_postponed_for_longer_does_not_delay_an_older_one() -> None:
    window = DeliveryWindow[AnItem](incarnation=1, prefetch=100, max_bytes=1_000_000)
    for tag in (1, 2):
        window.add(tag, AnItem(order_key=7))
    older, younger = window.take(2, now=0)
    window.postpone([older], until=5)
    window.postpone([younger], until=50)

    assert tags(window.take(2, now=6)) == [1]


def test_the_window_is_full_when_no_more_can_be_delivered() -> None:
    window = a_window(prefetch=3, letters=2)
    was_full_with_two = window.is_full

    window.add(3, AnItem())
    taken = window.take(10, now=0)
    was_full_with_three = window.is_full

    window.remove(taken[:1])
    assert (was_full_with_two, was_full_with_three, window.is_full) == (False, True, False)


def test_large_bodies_fill_the_window_before_their_number_does() -> None:
    window = a_window(prefetch=100, max_bytes=3000)
    window.add(1, AnItem(held_bytes=2000))
    was_full_with_one = window.is_full

    window.add(2, AnItem(held_bytes=1000))
    assert not was_full_with_one
    assert window.is_over_bytes
    assert window.is_full

    window.remove(window.take(10, now=0))
    assert window.held_bytes == 0


def test_what_another_channel_delivered_is_neither_acknowledged_nor_postponed() -> None:
    old = a_window(letters=1).take(1, now=0)
    window = DeliveryWindow[AnItem](incarnation=2, prefetch=10, max_bytes=10_000)
    window.add(1, AnItem())

    window.postpone(old, until=0)
    plan = window.remove(old)

    assert (plan.multiple_up_to, plan.singles) == (None, ())
    assert window.outstanding == 1
    assert window.ready(now=1) == 1


class AnyUse(RuleBasedStateMachine):
    """Arrive, take, postpone, acknowledge in any order: nothing is lost, nothing is given twice at a time, dead letters
    of one execution are given in the order of their tags, and every one is given in the end.
    """

    def __init__(self) -> None:
        super().__init__()
        self.window = DeliveryWindow[AnItem](incarnation=1, prefetch=10**6, max_bytes=10**9)
        self.now = 0.0
        self.execution_of: dict[int, int | None] = {}
        """By tag."""
        self.taken: dict[int, Delivery[AnItem]] = {}
        self.acknowledged: set[int] = set()

    @rule(execution_ids=lists(none() | integers(1, 3), min_size=1, max_size=5))
    def arrive(self, execution_ids: list[int | None]) -> None:
        for execution_id in execution_ids:
            tag = len(self.execution_of) + 1
            self.execution_of[tag] = execution_id
            self.window.add(tag, AnItem(order_key=execution_id, held_bytes=tag))

    @rule(limit=integers(1, 5))
    def take(self, limit: int) -> None:
        before = self.taken.copy()
        given = self.window.take(limit, self.now)
        assert len(given) <= limit
        assert given or self.window.ready(self.now) == 0, "due, not given, and due again at once: a busy loop"
        for delivery in given:
            assert delivery.tag not in self.taken
            assert delivery.tag not in self.acknowledged
            assert not self._older_open(delivery.tag) - (self.taken.keys() - before.keys()), "overtaken"
            self.taken[delivery.tag] = delivery

    @rule(choice=data(), delay=floats(0, 5))
    def postponed(self, choice: DataObject, delay: float) -> None:
        chosen = self._choose(choice)
        self.window.postpone([self.taken.pop(tag) for tag in chosen], self.now + delay)

    @rule(choice=data())
    def acknowledge(self, choice: DataObject) -> None:
        self._acknowledge(self._choose(choice))

    @rule(seconds=floats(0, 5))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(limit=integers(1, 3))
    def drain(self, limit: int) -> None:
        self._acknowledge(set(self.taken))
        # Each look gives something, or moves something to the time of an older one: twice the number is plenty.
        for _ in range(2 * self.window.outstanding + 2):
            if self.window.ready(self.now) == 0 and (due := self.window.next_due()) is not None:
                self.now = max(self.now, due)
            self.take(limit)
            self._acknowledge(set(self.taken))
        assert self.window.outstanding == 0

    @invariant()
    def everything_unacknowledged_is_counted(self) -> None:
        unacknowledged = self.execution_of.keys() - self.acknowledged
        assert self.window.outstanding == len(unacknowledged)
        assert self.window.held_bytes == sum(unacknowledged)
        waiting = self.window.ready(now=float("inf"))
        assert waiting == len(unacknowledged) - len(self.taken)

    def _acknowledge(self, chosen: set[int]) -> None:
        open_before = self.execution_of.keys() - self.acknowledged
        plan = self.window.remove([self.taken.pop(tag) for tag in chosen])
        together = {tag for tag in open_before if plan.multiple_up_to and tag <= plan.multiple_up_to}
        assert together | set(plan.singles) == chosen
        self.acknowledged |= chosen

    def _older_open(self, tag: int) -> set[int]:
        """Of the same execution, and not acknowledged."""
        execution_id = self.execution_of[tag]
        if execution_id is None:
            return set()
        open_tags = self.execution_of.keys() - self.acknowledged
        return {other for other in open_tags if other < tag and self.execution_of[other] == execution_id}

    def _choose(self, choice: DataObject) -> set[int]:
        taken = sorted(self.taken)
        places = choice.draw(sets(integers(0, len(taken) - 1))) if taken else ()
        return {taken[place] for place in places}


TestAnyUse = AnyUse.TestCase


def test_the_oldest_death_is_that_of_an_unacknowledged_item_that_is_no_canary() -> None:
    window = DeliveryWindow[AnItem](incarnation=1, prefetch=100, max_bytes=1_000_000)
    assert window.oldest_death is None
    window.add(1, AnItem(order_key=None, died_at=NOON - timedelta(hours=9), is_canary=True))
    window.add(2, AnItem(died_at=None))
    assert window.oldest_death is None, "its time of death is unknown"
    window.add(3, AnItem(order_key=3, died_at=NOON))
    window.add(4, AnItem(order_key=4, died_at=NOON - timedelta(minutes=5)))
    assert window.oldest_death == NOON - timedelta(minutes=5)
    window.remove(delivery for delivery in window.take(10, now=0) if delivery.tag == 4)
    assert window.oldest_death == NOON, "taken, not yet acknowledged"


def acknowledged(open_tags: list[int], plan: AckPlan) -> set[int]:
    """As the broker understands the plan."""
    together = {tag for tag in open_tags if plan.multiple_up_to is not None and tag <= plan.multiple_up_to}
    return together | set(plan.singles)


@pytest.mark.parametrize(
    ("open_tags", "done", "multiple_up_to", "singles"),
    [
        ([3, 4, 5, 6], {3, 4, 5}, 5, ()),
        ([3, 4, 5], {3, 4, 5}, 5, ()),
        ([3, 4, 5, 6, 7], {3, 5, 7}, 3, (5, 7)),
        ([3, 4, 5], {4, 5}, None, (4, 5)),
        ([5], {4, 5, 9}, 5, ()),
    ],
)
def test_one_acknowledgement_for_the_front_and_one_for_each_behind_an_open_tag(
    open_tags: list[int], done: set[int], multiple_up_to: int | None, singles: tuple[int, ...]
) -> None:
    assert plan_acks(open_tags, done) == AckPlan(multiple_up_to=multiple_up_to, singles=singles)


@given(st.sets(st.integers(1, 60)), st.sets(st.integers(1, 60)))
def test_exactly_the_wanted_open_tags_are_acknowledged(open_tags: set[int], wanted: set[int]) -> None:
    in_order = sorted(open_tags)

    plan = plan_acks(in_order, wanted)

    assert acknowledged(in_order, plan) == open_tags & wanted
