"""Acknowledging never covers a letter that is not to be acknowledged, and misses none that is."""

from hypothesis import given
from hypothesis import strategies as st

from dlq_handler.broker.consume.delivery import AckPlan, plan_acks


def acknowledged(open_tags: list[int], plan: AckPlan) -> set[int]:
    """As the broker understands the plan."""
    together = {tag for tag in open_tags if plan.multiple_up_to is not None and tag <= plan.multiple_up_to}
    return together | set(plan.singles)


def test_wanted_tags_at_the_front_take_one_acknowledgement() -> None:
    assert plan_acks([3, 4, 5, 6], {3, 4, 5}) == AckPlan(multiple_up_to=5, singles=())


def test_above_an_open_tag_each_is_acknowledged_alone() -> None:
    assert plan_acks([3, 4, 5, 6, 7], {3, 5, 7}) == AckPlan(multiple_up_to=3, singles=(5, 7))


def test_an_open_first_tag_forbids_acknowledging_together() -> None:
    assert plan_acks([3, 4, 5], {4, 5}) == AckPlan(multiple_up_to=None, singles=(4, 5))


def test_a_tag_that_is_no_longer_open_is_left_out() -> None:
    assert plan_acks([5], {4, 5, 9}) == AckPlan(multiple_up_to=5, singles=())


@given(st.sets(st.integers(1, 60)), st.sets(st.integers(1, 60)))
def test_exactly_the_wanted_open_tags_are_acknowledged(open_tags: set[int], wanted: set[int]) -> None:
    in_order = sorted(open_tags)

    plan = plan_acks(in_order, wanted)

    assert acknowledged(in_order, plan) == open_tags & wanted


@given(st.sets(st.integers(1, 60), min_size=1))
def test_all_open_tags_wanted_is_a_single_acknowledgement(open_tags: set[int]) -> None:
    assert plan_acks(sorted(open_tags), open_tags) == AckPlan(multiple_up_to=max(open_tags), singles=())
