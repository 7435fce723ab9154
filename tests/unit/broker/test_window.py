"""What one channel has delivered: in which order it is given, when it is full, what settling forgets."""

from datetime import timedelta

import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from hypothesis.strategies import DataObject, data, floats, integers, lists, none, sets

from dlq_handler.broker.delivery import Delivery
from dlq_handler.broker.window import LETTER_OVERHEAD_BYTES, Window
from dlq_handler.domain.canary import CANARY_QUEUE
from dlq_handler.domain.execution import GAME_DAY_ACTION_REF
from dlq_handler.domain.worker import GAME_DAY_WORKER_ID
from tests.support.builders import NOON, a_canary, a_dead_letter, a_death


def a_window(*, prefetch: int = 100, max_bytes: int = 1_000_000, letters: int = 0) -> Window:
    window = Window(incarnation=1, prefetch=prefetch, max_bytes=max_bytes)
    for tag in range(1, letters + 1):
        window.arrive(tag, a_dead_letter(execution_id=tag))
    return window


def tags(deliveries: list[Delivery]) -> list[int]:
    return [delivery.tag for delivery in deliveries]


def test_letters_are_given_once_and_in_order_of_arrival() -> None:
    window = a_window(letters=5)

    assert tags(window.take(3, now=0)) == [1, 2, 3]
    assert tags(window.take(3, now=0)) == [4, 5]


def test_a_letter_put_off_comes_again_before_later_ones_when_it_is_due() -> None:
    window = a_window(letters=4)
    first, second = window.take(2, now=0)
    window.put_off([second, first], until=10)

    assert tags(window.take(1, now=9)) == [3]
    assert window.next_due() == 10
    assert tags(window.take(10, now=10)) == [1, 2, 4]


def test_a_letter_does_not_overtake_an_older_one_of_its_execution() -> None:
    window = Window(incarnation=1, prefetch=100, max_bytes=1_000_000)
    window.arrive(1, a_dead_letter(execution_id=7))
    window.put_off(window.take(1, now=0), until=10)
    window.arrive(2, a_dead_letter(execution_id=8))
    window.arrive(3, a_dead_letter(execution_id=7))

    assert tags(window.take(10, now=5)) == [2]
    assert tags(window.take(10, now=10)) == [1, 3]


def test_a_letter_waits_while_an_older_one_of_its_execution_is_being_judged() -> None:
    window = Window(incarnation=1, prefetch=100, max_bytes=1_000_000)
    window.arrive(1, a_dead_letter(execution_id=7))
    first = window.take(10, now=0)
    window.arrive(2, a_dead_letter(execution_id=7))
    window.arrive(3, a_dead_letter(execution_id=8))

    assert tags(window.take(10, now=0)) == [3]
    assert tags(window.take(10, now=1)) == [], "not settled yet"
    window.settle(first)
    assert tags(window.take(10, now=2)) == [2]


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_more_postponed_dead_letters_of_one_execution_than_fit_a_batch_are_all_given_again(
    limit: int,
) -> None:
    window = Window(incarnation=1, prefetch=100, max_bytes=1_000_000)
    count = limit + 1
    for tag in range(1, count + 1):
        window.arrive(tag, a_dead_letter(execution_id=7))
    window.put_off(window.take(count, now=0), until=10)

    given = []
    for look in range(1, 2 * count):
        batch = window.take(limit, now=10 + look)
        given += tags(batch)
        window.settle(batch)

    assert given == list(range(1, count + 1))


def test_letters_of_one_execution_in_one_batch_stay_together() -> None:
    window = Window(incarnation=1, prefetch=100, max_bytes=1_000_000)
    for tag in (1, 2):
        window.arrive(tag, a_dead_letter(execution_id=7))

    assert tags(window.take(10, now=0)) == [1, 2]


def test_the_window_is_full_when_no_more_can_be_delivered() -> None:
    window = a_window(prefetch=3, letters=2)
    was_full_with_two = window.is_full

    window.arrive(3, a_dead_letter())
    taken = window.take(10, now=0)
    was_full_with_three = window.is_full

    window.settle(taken[:1])
    assert (was_full_with_two, was_full_with_three, window.is_full) == (False, True, False)


def test_large_bodies_fill_the_window_before_their_number_does() -> None:
    window = a_window(prefetch=100, max_bytes=3 * LETTER_OVERHEAD_BYTES)
    window.arrive(1, a_dead_letter(body=b"x" * LETTER_OVERHEAD_BYTES))
    was_full_with_one = window.is_full

    window.arrive(2, a_dead_letter(body=b""))
    assert not was_full_with_one
    assert window.is_over_bytes
    assert window.is_full

    window.settle(window.take(10, now=0))
    assert window.held_bytes == 0


def test_what_another_channel_delivered_is_neither_settled_nor_put_off() -> None:
    old = a_window(letters=1).take(1, now=0)
    window = Window(incarnation=2, prefetch=10, max_bytes=10_000)
    window.arrive(1, a_dead_letter())

    window.put_off(old, until=0)
    plan = window.settle(old)

    assert (plan.multiple_up_to, plan.singles) == (None, ())
    assert window.outstanding == 1
    assert window.ready(now=1) == 1


class AnyUse(RuleBasedStateMachine):
    """Arrive, take, put off and settle in any order: nothing is lost, nothing is given twice at a time, dead letters
    of one execution are given in the order of their tags, and every one is given in the end.
    """

    def __init__(self) -> None:
        super().__init__()
        self.window = Window(incarnation=1, prefetch=10**6, max_bytes=10**9)
        self.now = 0.0
        self.execution_of: dict[int, int | None] = {}
        """By tag."""
        self.taken: dict[int, Delivery] = {}
        self.settled: set[int] = set()

    @rule(execution_ids=lists(none() | integers(1, 3), min_size=1, max_size=5))
    def arrive(self, execution_ids: list[int | None]) -> None:
        for execution_id in execution_ids:
            tag = len(self.execution_of) + 1
            self.execution_of[tag] = execution_id
            self.window.arrive(
                tag, a_dead_letter(execution_id=execution_id, body=b"x" * tag, headers="y" * tag)
            )

    @rule(limit=integers(1, 5))
    def take(self, limit: int) -> None:
        before = self.taken.copy()
        given = self.window.take(limit, self.now)
        assert len(given) <= limit
        assert given or self.window.ready(self.now) == 0, "due, not given, and due again at once: a busy loop"
        for delivery in given:
            assert delivery.tag not in self.taken
            assert delivery.tag not in self.settled
            assert not self._older_open(delivery.tag) - (self.taken.keys() - before.keys()), "overtaken"
            self.taken[delivery.tag] = delivery

    @rule(choice=data(), delay=floats(0, 5))
    def put_off(self, choice: DataObject, delay: float) -> None:
        chosen = self._choose(choice)
        self.window.put_off([self.taken.pop(tag) for tag in chosen], self.now + delay)

    @rule(choice=data())
    def settle(self, choice: DataObject) -> None:
        self._settle(self._choose(choice))

    @rule(seconds=floats(0, 5))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(limit=integers(1, 3))
    def drain(self, limit: int) -> None:
        self._settle(set(self.taken))
        # Each look gives something, or moves something to the time of an older one: twice the number is plenty.
        for _ in range(2 * self.window.outstanding + 2):
            if self.window.ready(self.now) == 0 and (due := self.window.next_due()) is not None:
                self.now = max(self.now, due)
            self.take(limit)
            self._settle(set(self.taken))
        assert self.window.outstanding == 0

    @invariant()
    def everything_unsettled_is_counted(self) -> None:
        unsettled = self.execution_of.keys() - self.settled
        assert self.window.outstanding == len(unsettled)
        assert self.window.held_bytes == sum(2 * tag + LETTER_OVERHEAD_BYTES for tag in unsettled)
        waiting = self.window.ready(now=float("inf"))
        assert waiting == len(unsettled) - len(self.taken)

    def _settle(self, chosen: set[int]) -> None:
        open_before = self.execution_of.keys() - self.settled
        plan = self.window.settle([self.taken.pop(tag) for tag in chosen])
        together = {tag for tag in open_before if plan.multiple_up_to and tag <= plan.multiple_up_to}
        assert together | set(plan.singles) == chosen
        self.settled |= chosen

    def _older_open(self, tag: int) -> set[int]:
        """Of the same execution, and not settled."""
        execution_id = self.execution_of[tag]
        if execution_id is None:
            return set()
        open_tags = self.execution_of.keys() - self.settled
        return {other for other in open_tags if other < tag and self.execution_of[other] == execution_id}

    def _choose(self, choice: DataObject) -> set[int]:
        taken = sorted(self.taken)
        places = choice.draw(sets(integers(0, len(taken) - 1))) if taken else ()
        return {taken[place] for place in places}


TestAnyUse = AnyUse.TestCase


def test_the_oldest_death_is_that_of_a_letter_in_our_hands_that_is_somebodys_work() -> None:
    window = Window(incarnation=1, prefetch=100, max_bytes=1_000_000)
    assert window.oldest_death is None
    window.arrive(1, a_canary(death=a_death(queue=CANARY_QUEUE, time=NOON - timedelta(hours=9))))
    rehearsal = {"worker_id": GAME_DAY_WORKER_ID, "action_ref": GAME_DAY_ACTION_REF}
    window.arrive(2, a_dead_letter(death=a_death(time=NOON - timedelta(hours=9)), **rehearsal))
    window.arrive(3, a_dead_letter(death=None))
    assert window.oldest_death is None, "nobody knows of its death"
    window.arrive(4, a_dead_letter(execution_id=4, death=a_death(time=NOON)))
    window.arrive(5, a_dead_letter(execution_id=5, death=a_death(time=NOON - timedelta(minutes=5))))
    assert window.oldest_death == NOON - timedelta(minutes=5)
    window.settle(delivery for delivery in window.take(10, now=0) if delivery.tag == 5)
    assert window.oldest_death == NOON, "taken, not yet settled"
