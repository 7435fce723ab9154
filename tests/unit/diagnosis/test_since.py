"""Since when something is wrong, and what of a look is news."""

from dataclasses import replace
from datetime import timedelta

from dlq_handler.diagnosis.checks import Check
from dlq_handler.diagnosis.diagnosis import Diagnosis, Health, ok
from dlq_handler.diagnosis.since import beginnings_of, dated, is_change, is_due, with_beginnings
from tests.support.builders import NOON

LATER = NOON + timedelta(minutes=30)


def a_diagnosis(health: Health = Health.PROBLEM, *, check: Check = Check.TOPOLOGY) -> Diagnosis:
    return replace(ok(check, "3 broken routes"), health=health)


ILL, WELL, UNSURE = (a_diagnosis(health) for health in (Health.PROBLEM, Health.OK, Health.UNKNOWN))


def test_a_problem_is_as_old_as_its_first_look() -> None:
    [first], remembered = dated([ILL], {}, at=NOON)
    [second], _ = dated([ILL], remembered, at=LATER)
    assert (first.since, second.since) == (NOON, NOON)


def test_what_the_view_knows_better_is_taken_from_there() -> None:
    [found], _ = dated([replace(ILL, since=NOON)], {Check.TOPOLOGY: LATER}, at=LATER)
    assert found.since == NOON


def test_what_lasts_is_as_old_as_it_was_at_the_first_look_whatever_waits_by_now() -> None:
    backlog = a_diagnosis(check=Check.WORKER_BACKLOG)
    _, remembered = dated([replace(backlog, since=NOON)], {}, at=NOON)
    slid = replace(backlog, since=LATER)

    [found], _ = dated([slid], remembered, at=LATER)
    [looked_once] = with_beginnings([slid], remembered)
    assert (found.since, looked_once.since) == (NOON, NOON)


def test_another_one_of_its_kind_is_not_as_old_as_the_one_before_it() -> None:
    [found], _ = dated(
        [replace(a_diagnosis(check=Check.WORKER_UNAVAILABLE), since=LATER)],
        {Check.WORKER_UNAVAILABLE: NOON},
        at=LATER,
    )
    assert found.since == LATER


def test_a_problem_that_was_over_begins_anew_but_not_one_that_could_not_be_seen() -> None:
    _, after_unsure = dated([UNSURE], {Check.TOPOLOGY: NOON}, at=NOON)
    _, after_well = dated([WELL], {Check.TOPOLOGY: NOON}, at=NOON)
    assert (after_unsure, after_well) == ({Check.TOPOLOGY: NOON}, {})


def test_only_problems_have_a_since() -> None:
    found, _ = dated([UNSURE, WELL], {Check.TOPOLOGY: NOON}, at=NOON)
    assert [one.since for one in found] == [None, None]


def test_the_next_process_reads_since_from_the_record() -> None:
    assert beginnings_of([replace(ILL, since=NOON), a_diagnosis(Health.OK, check=Check.BROKER)]) == {
        Check.TOPOLOGY: NOON
    }


def test_another_health_is_a_change_and_other_words_are_none() -> None:
    reworded = replace(ILL, explanation="4 broken routes")
    assert is_change(None, [WELL])
    assert is_change([WELL], [ILL])
    assert is_change([ILL], [])
    assert not is_change([ILL], [reworded])


def test_words_of_a_problem_are_refreshed_after_minutes_and_those_of_health_never() -> None:
    reworded = replace(ILL, explanation="4 broken routes")
    assert is_due([ILL], NOON, [reworded], LATER)
    assert not is_due([ILL], NOON, [reworded], NOON + timedelta(minutes=1))
    assert not is_due([ILL], NOON, [ILL], LATER)
    assert not is_due([WELL], NOON, [replace(WELL, explanation="no broken route")], LATER)
