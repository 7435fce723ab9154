"""What a canary that arrives, or does not, says of a worker's binding."""

from typing import Any

import pytest

from dlq_handler.topology.canary import (
    CanaryState,
    IntakeView,
    Probe,
    WorkerCanary,
    choose_due,
    count_by_state,
    decide_canaries,
    describe_canaries,
    longest,
    only_wants_time,
    proven,
    worst_of,
)
from dlq_handler.topology.options import CanaryOptions

OK, LOST, UNKNOWN = CanaryState.OK, CanaryState.LOST, CanaryState.UNKNOWN
OPTIONS = CanaryOptions(interval_seconds=60, limit_seconds=30)
QUEUE = "attune.dlx.queue"


def a_probe(ago: float, *, took: float | None = None, worker: int = 7, **changes: Any) -> Probe:
    fields: dict[str, Any] = {
        "worker_id": worker,
        "ttl_seconds": 5.0,
        "created_seconds_ago": ago,
        "sent_seconds_ago": ago,
        "took_seconds": took,
    }
    return Probe(**(fields | changes))


def a_view(**changes: Any) -> IntakeView:
    fields: dict[str, Any] = {"consuming_seconds": 3600.0, "waiting": 0}
    return IntakeView(**(fields | changes))


def decided(*probes: Probe, view: IntakeView | None = None) -> WorkerCanary:
    [canary] = decide_canaries(probes, {7}, view or a_view(), OPTIONS, queue=QUEUE)
    return canary


@pytest.mark.parametrize(
    ("probes", "state", "explanation"),
    [
        ([a_probe(20, took=5.2)], OK, "arrived 5.2 s after"),
        ([a_probe(3), a_probe(63, took=5.2)], OK, "arrived"),
        ([a_probe(36)], LOST, "sent 36 s ago and did not arrive within 35 s"),
        ([a_probe(36), a_probe(96, took=5.2)], LOST, "did not arrive"),
        ([a_probe(3, took=2.9), a_probe(63)], OK, "arrived"),
        # Not overdue yet, so what was known before still holds.
        ([a_probe(35), a_probe(96)], LOST, "sent 96 s ago"),
        ([a_probe(35)], UNKNOWN, "none has arrived yet"),
        ([], UNKNOWN, "no conclusive canary yet"),
        # Twice the interval, the TTL and the limit: by then there should have been others.
        ([a_probe(155, took=5.2)], OK, "arrived"),
        ([a_probe(156, took=5.2)], UNKNOWN, "too old"),
        ([a_probe(156)], UNKNOWN, "too old"),
        # The broker never confirmed it: perhaps it was never sent.
        ([a_probe(60, sent_seconds_ago=None)], UNKNOWN, "none has arrived yet"),
        ([a_probe(60, worker=8)], UNKNOWN, "no conclusive canary yet"),
    ],
)
def test_newest_canary_with_a_result_decides(
    probes: list[Probe], state: CanaryState, explanation: str
) -> None:
    canary = decided(*probes)

    assert canary.state is state
    assert explanation in canary.explanation


def test_without_a_conclusive_canary_none_is_called_too_old() -> None:
    """It was sent before this replica consumed, so that it did not arrive proves nothing."""
    canary = decided(a_probe(156), view=a_view(consuming_seconds=10.0))

    assert (canary.state, canary.explanation) == (UNKNOWN, "no conclusive canary yet")


@pytest.mark.parametrize(
    ("view", "explanation"),
    [
        (a_view(consuming_seconds=0.0), "this replica does not consume attune.dlx.queue"),
        (a_view(waiting=None), "the number of messages in the intake queue is unknown"),
        (a_view(others=("executor.dlq",)), "'executor.dlq' also consume(s) attune.dlx.queue"),
    ],
)
@pytest.mark.parametrize("probe", [a_probe(40), a_probe(10, took=5.0)], ids=["unseen", "seen"])
def test_who_is_blind_says_nothing_even_of_what_arrived(
    view: IntakeView, explanation: str, probe: Probe
) -> None:
    canary = decided(probe, view=view)

    assert canary.state is UNKNOWN
    assert explanation in canary.explanation


@pytest.mark.parametrize(
    ("view", "explanation"),
    [
        (a_view(consuming_seconds=39.0), "this replica has consumed without a break for only 39 s"),
        (a_view(unseen=1), "1 unidentified consumer(s)"),
        (a_view(waiting=12), "12 dead letter(s) wait"),
    ],
)
def test_what_explains_that_one_did_not_arrive_is_no_excuse_for_one_that_did(
    view: IntakeView, explanation: str
) -> None:
    unseen, seen = decided(a_probe(40), view=view), decided(a_probe(40, took=5.0), view=view)

    assert (unseen.state, explanation in unseen.explanation) == (UNKNOWN, True)
    assert seen.state is OK


@pytest.mark.parametrize(
    ("probes", "view", "passes"),
    [
        ([], a_view(), True),
        ([a_probe(35)], a_view(), True),
        ([a_probe(156, took=5.2)], a_view(), True),
        ([a_probe(40)], a_view(consuming_seconds=39.0), True),
        ([a_probe(40)], a_view(waiting=12), True),
        ([a_probe(40)], a_view(unseen=1), False),
        ([a_probe(40)], a_view(consuming_seconds=0.0), False),
        ([a_probe(40)], a_view(waiting=None), False),
        ([a_probe(40)], a_view(others=("executor.dlq",)), False),
        ([a_probe(40)], a_view(), False),
        ([a_probe(20, took=5.2)], a_view(), False),
    ],
)
def test_a_doubt_passes_when_the_next_probe_settles_it(
    probes: list[Probe], view: IntakeView, passes: bool
) -> None:
    assert decided(*probes, view=view).passes is passes


def test_of_several_reasons_the_lasting_one_is_named() -> None:
    young = WorkerCanary(worker_id=1, state=UNKNOWN, explanation="none has arrived yet", passes=True)
    blind = WorkerCanary(worker_id=2, state=UNKNOWN, explanation="another consumer receives them")
    fine = WorkerCanary(worker_id=3, state=OK, explanation="arrived")

    assert describe_canaries([young, blind]) == "2 of 2 worker(s) (1, 2): another consumer receives them"
    assert [only_wants_time(some) for some in ([young, blind], [young, fine], [fine], [])] == [
        False,
        True,
        False,
        False,
    ]


def test_the_last_arrival_is_kept_whatever_became_of_later_ones() -> None:
    canary = decided(a_probe(40), a_probe(100, took=5.0))

    assert (canary.state, canary.seen_seconds_ago, canary.took_seconds) == (LOST, 95.0, 5.0)


def test_each_worker_is_decided_by_its_own_probes() -> None:
    probes = [a_probe(40, worker=9), a_probe(10, took=5.0, worker=8)]

    canaries = decide_canaries(probes, {9, 8, 7}, a_view(), OPTIONS, queue=QUEUE)

    assert [(one.worker_id, one.state) for one in canaries] == [(7, UNKNOWN), (8, OK), (9, LOST)]
    assert count_by_state(canaries) == {OK: 1, LOST: 1, UNKNOWN: 1}


def test_the_longest_of_the_known_durations_counts_and_of_none_it_is_unknown() -> None:
    assert longest([2.0, None, 90.0]) == 90.0
    assert longest([None]) is None


def test_in_a_large_fleet_a_probe_stays_fresh_for_as_long_as_a_round_of_all_takes() -> None:
    assert OPTIONS.fresh_seconds(20, 5) == OPTIONS.fresh_seconds(240, 5) == 155
    assert OPTIONS.fresh_seconds(2400, 5) == 2 * 600 + 35


def test_those_without_a_probe_for_longest_are_due_first_and_no_more_than_a_round() -> None:
    probes = [a_probe(61, worker=1), a_probe(59, worker=2), a_probe(200, worker=3), a_probe(300, worker=2)]

    assert choose_due({1, 2, 3, 4}, probes, interval_seconds=60, most=20) == [4, 3, 1]
    assert choose_due(range(1000), (), interval_seconds=60, most=20) == list(range(20))
    assert choose_due((), probes, interval_seconds=60, most=20) == []


@pytest.mark.parametrize(
    ("states", "worst"),
    [((), UNKNOWN), ((OK,), OK), ((OK, UNKNOWN), UNKNOWN), ((OK, UNKNOWN, LOST), LOST)],
)
def test_the_worst_state_counts(states: tuple[CanaryState, ...], worst: CanaryState) -> None:
    canaries = [WorkerCanary(worker_id=n, state=state, explanation="w") for n, state in enumerate(states)]

    assert worst_of(canaries) is worst


def test_many_lost_ones_are_counted_and_some_named() -> None:
    canaries = [WorkerCanary(worker_id=n, state=LOST, explanation="it did not arrive") for n in range(7)]

    assert describe_canaries(canaries) == "7 of 7 worker(s) (0, 1, 2, 3, 4 and 2 more): it did not arrive"


def test_from_outside_a_canary_counts_when_it_or_a_later_one_arrived() -> None:
    lost, arrived, on_its_way = a_probe(90), a_probe(60, took=5.2, worker=8), a_probe(40)
    unsent = a_probe(95, sent_seconds_ago=None)

    assert proven([lost, arrived, on_its_way, unsent]) == [lost, arrived]
    assert proven([lost, on_its_way]) == [], "perhaps no replica has consumed since"
    assert decided(*proven([lost, arrived, on_its_way])).state is LOST


@pytest.mark.parametrize("interval_seconds", [1, 10, 60, 3600])
def test_the_canaries_before_a_pause_are_still_fresh_after_it(interval_seconds: float) -> None:
    """A round that takes long, on a busy machine, is followed by a pause."""
    options = CanaryOptions(interval_seconds=interval_seconds, ttl_ms=200, limit_seconds=1)
    two_rounds = 2 * options.round_seconds
    assert options.longest_pause_seconds + two_rounds <= options.fresh_seconds(1, ttl_seconds=0.2)
