"""Acknowledging never covers a letter that is not settled, and misses none that is."""

from hypothesis import given
from hypothesis import strategies as st

from dlq_handler.broker.delivery import AckPlan, plan_acks


def acknowledged(open_tags: list[int], plan: AckPlan) -> set[int]:
    """As the broker understands the plan."""
    together = {tag for tag in open_tags if plan.multiple_up_to is not None and tag <= plan.multiple_up_to}
    return together | set(plan.singles)


def test_settled_tags_at_the_front_take_one_acknowledgement() -> None:
    assert plan_acks([3, 4, 5, 6], {3, 4, 5}) == AckPlan(multiple_up_to=5, singles=())


def test_above_an_unsettled_tag_each_is_acknowledged_alone() -> None:
    assert plan_acks([3, 4, 5, 6, 7], {3, 5, 7}) == AckPlan(multiple_up_to=3, singles=(5, 7))


def test_an_unsettled_first_tag_forbids_acknowledging_together() -> None:
    assert plan_acks([3, 4, 5], {4, 5}) == AckPlan(multiple_up_to=None, singles=(4, 5))


def test_a_tag_that_is_no_longer_open_is_left_out() -> None:
    assert plan_acks([5], {4, 5, 9}) == AckPlan(multiple_up_to=5, singles=())


@given(st.sets(st.integers(1, 60)), st.sets(st.integers(1, 60)))
def test_exactly_the_settled_open_tags_are_acknowledged(open_tags: set[int], settled: set[int]) -> None:
    in_order = sorted(open_tags)

    plan = plan_acks(in_order, settled)

    assert acknowledged(in_order, plan) == open_tags & settled


@given(st.sets(st.integers(1, 60), min_size=1))
def test_all_open_tags_settled_is_a_single_acknowledgement(open_tags: set[int]) -> None:
    assert plan_acks(sorted(open_tags), open_tags) == AckPlan(multiple_up_to=max(open_tags), singles=())
