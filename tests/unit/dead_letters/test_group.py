"""A group is what came for one cause out of one queue; its name depends on nothing else."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.group import (
    Category,
    Group,
    GroupKey,
    detail_text_of,
    group_key_of,
    title_in,
    title_of,
)
from dlq_handler.dead_letters.letter import ParseProblem
from dlq_handler.dead_letters.record import Entry
from dlq_handler.history.history import Segment, Timeline
from dlq_handler.workers.availability import Availability
from tests.support.builders import NOON, a_dead_letter, a_death, a_raw_letter, read


def an_entry(outcome: Outcome = Outcome.FAILED, explanation: str = "explanation", **changes: Any) -> Entry:
    return Entry(letter=a_dead_letter(**changes), outcome=outcome, explanation=explanation)


@pytest.mark.parametrize(
    ("reason", "category"),
    [
        ("expired", Category.NOT_TAKEN),
        ("maxlen", Category.QUEUE_FULL),
        ("rejected", Category.REJECTED),
        ("delivery_limit", Category.DELIVERY_LIMIT),
        ("rescued", Category.RESCUED),
        ("of the next broker", Category.OTHER_DEATH),
    ],
)
@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.STALE_ATTEMPT, Outcome.UPDATE_FAILED])
def test_cause_is_how_it_died_whatever_became_of_it(
    reason: str, category: Category, outcome: Outcome
) -> None:
    key = group_key_of(an_entry(outcome, death=a_death(reason=reason)))
    assert key == GroupKey(category=category, reason=reason, queue="worker.7.executions")


def test_letter_that_died_nowhere_says_so() -> None:
    key = group_key_of(an_entry(death=None, first_death_queue=None))
    assert key == GroupKey(category=Category.NO_DEATH, reason="none", queue=None)


def test_letter_of_no_use_is_grouped_by_what_is_wrong_with_it() -> None:
    unrelated = group_key_of(an_entry(Outcome.UNRELATED, message_type="EnforcementCreated"))
    unknown = group_key_of(an_entry(Outcome.UNKNOWN_EXECUTION))
    assert (unrelated.category, unrelated.detail) == (Category.UNRELATED, "EnforcementCreated")
    assert (unknown.category, unknown.detail) == (Category.UNKNOWN_EXECUTION, None)


def test_unreadable_letters_that_differ_in_a_position_only_are_one_group() -> None:
    bodies = [b"{", b'{"a": 1,', b"nonsense"]
    flaws = {read(a_raw_letter(body)).parse_error for body in bodies}
    assert len(flaws) > 1, "the flaw itself names the position"
    entries = [
        Entry(letter=read(a_raw_letter(body)), outcome=Outcome.UNREADABLE, explanation="") for body in bodies
    ]
    [key] = {group_key_of(entry) for entry in entries}
    assert key.detail == "body_not_json"


def test_another_wording_of_the_parse_error_makes_no_other_group() -> None:
    one, reworded, other = (
        an_entry(Outcome.UNREADABLE, explanation=text, parse_error=text, parse_problem=problem)
        for text, problem in (
            ("body is not JSON: line 1", ParseProblem.BODY_NOT_JSON),
            ("no JSON in the body", ParseProblem.BODY_NOT_JSON),
            ("body is not JSON: line 1", ParseProblem.BODY_NOT_UTF8),
        )
    )
    assert group_key_of(one).id == group_key_of(reworded).id != group_key_of(other).id
    # Links to it stand in mails and chats: it must be the same in every version.
    assert group_key_of(one).id == "689b0ff7dc"


def test_unreadable_letter_that_was_refused_too_stays_unreadable() -> None:
    refused = an_entry(Outcome.UPDATE_FAILED, parse_error="body is not UTF-8")
    assert group_key_of(refused).category is Category.UNREADABLE


def test_id_is_short_and_neither_of_a_time_nor_of_a_letter() -> None:
    first = an_entry(key="a", execution_id=1)
    later = an_entry(key="b", execution_id=2, death=a_death(time=NOON + timedelta(days=3)))
    assert group_key_of(first).id == group_key_of(later).id
    # Links to it stand in mails and chats: it must be the same in every version.
    assert group_key_of(first).id == "5a9eeca0f7"


def test_each_part_makes_another_group() -> None:
    key = GroupKey(category=Category.NOT_TAKEN, reason="expired", queue="q", detail="d")
    others = [
        GroupKey(category=Category.REJECTED, reason="expired", queue="q", detail="d"),
        GroupKey(category=Category.NOT_TAKEN, reason="maxlen", queue="q", detail="d"),
        GroupKey(category=Category.NOT_TAKEN, reason="expired", queue="p", detail="d"),
        GroupKey(category=Category.NOT_TAKEN, reason="expired", queue="q", detail=None),
        GroupKey(category=Category.NOT_TAKEN, reason="expired", queue="q", detail=""),
        GroupKey(category=Category.NOT_TAKEN, reason="expired", queue=None, detail="d"),
    ]
    assert len({key.id, *(other.id for other in others)}) == 1 + len(others)


def test_a_text_without_end_makes_no_key_without_end() -> None:
    key = group_key_of(an_entry(Outcome.UNRELATED, message_type="x" * 500, first_death_queue="y" * 500))
    assert key.queue is not None
    assert key.detail is not None
    assert len(key.queue) == len(key.detail) == 200


def a_group(
    category: Category, *, queue: str | None = "worker.7.executions", detail: str | None = None
) -> Group:
    return Group(
        id="0",
        category=category,
        reason="expired",
        queue=queue,
        detail=detail,
        worker_id=7,
        first_at=NOON,
        last_at=NOON,
        letters=1,
        failed_by_letter=1,
        actions=(),
        more_actions=0,
    )


def test_title_says_what_happened_and_to_whom() -> None:
    def title(group: Group, name: str | None = "worker-python", *, was_unavailable: bool = False) -> str:
        return title_of(group, worker_name=name, was_unavailable=was_unavailable)

    assert title(a_group(Category.NOT_TAKEN), was_unavailable=True) == "Worker unavailable: worker-python"
    assert title(a_group(Category.NOT_TAKEN)) == "Not taken in time: worker-python"
    assert title(a_group(Category.NOT_TAKEN), None) == "Not taken in time: worker.7.executions"
    assert title(a_group(Category.QUEUE_FULL), was_unavailable=True) == "Queue full: worker-python"
    assert title(a_group(Category.UNREADABLE, detail="body_not_json")) == "Unreadable: body is not JSON"
    assert title(a_group(Category.UNREADABLE)) == "Unreadable"
    assert title(a_group(Category.UNRELATED)) == "Unrelated"
    assert title(a_group(Category.NO_DEATH, queue=None), None) == "Published without a death"


@pytest.mark.parametrize("problem", ParseProblem)
def test_each_parse_problem_has_a_text(problem: ParseProblem) -> None:
    text = detail_text_of(a_group(Category.UNREADABLE, detail=problem.value))
    assert text
    assert text != problem.value


def test_detail_without_a_text_of_its_own_is_shown_as_it_is() -> None:
    assert detail_text_of(a_group(Category.UNREADABLE, detail="of_a_newer_version")) == "of_a_newer_version"
    # A sender may choose a message type that is the name of a problem.
    assert detail_text_of(a_group(Category.UNRELATED, detail="body_not_json")) == "body_not_json"
    assert detail_text_of(a_group(Category.UNREADABLE)) is None


def test_requests_that_the_executor_rejected_have_a_title_of_their_own() -> None:
    unrelated = a_group(
        Category.UNRELATED, queue="attune.execution.requests.queue", detail="ExecutionRequested"
    )
    declined = replace(unrelated, reason="rejected", worker_id=None)

    def title(group: Group) -> str:
        return title_of(group, worker_name=None, was_unavailable=False)

    assert title(declined) == "Requests rejected for lack of a worker"
    assert title(replace(declined, reason="expired")) == "Unrelated: ExecutionRequested"
    assert title(replace(declined, worker_id=7)) == "Unrelated: ExecutionRequested"
    assert title(replace(declined, detail="Odd")) == "Unrelated: Odd"


MINUTE = timedelta(minutes=1)
TTL_SECONDS = 300.0
GROUP = a_group(Category.NOT_TAKEN)


def gone(since: datetime, until: datetime) -> list[Timeline]:
    segment = Segment(since=since, until=until, availability=Availability.UNAVAILABLE)
    return [Timeline(worker_id=7, name="worker-python", segments=(segment,))]


@pytest.mark.parametrize(
    ("since", "until"),
    [(-4, -1), (-60, 60), (0.5, 30)],
    ids=["back before it expired", "gone all along", "called gone after it expired"],
)
def test_a_worker_that_was_unavailable_while_its_letters_waited_is_the_cause(
    since: float, until: float
) -> None:
    timelines = gone(NOON + since * MINUTE, NOON + until * MINUTE)
    assert title_in(GROUP, timelines, {}, ttl_seconds=TTL_SECONDS) == "Worker unavailable: worker-python"


def test_a_worker_that_was_unavailable_at_another_time_is_not() -> None:
    timelines = gone(NOON - 50 * MINUTE, NOON - 40 * MINUTE)
    assert title_in(GROUP, timelines, {}, ttl_seconds=TTL_SECONDS) == "Not taken in time: worker-python"


def test_of_a_stretch_of_time_its_own_newest_letter_counts() -> None:
    timelines = gone(NOON - 50 * MINUTE, NOON - 40 * MINUTE)
    assert (
        title_in(GROUP, timelines, {}, ttl_seconds=TTL_SECONDS, last_at=NOON - 45 * MINUTE)
        == "Worker unavailable: worker-python"
    )


@pytest.mark.parametrize(
    ("ttl_seconds", "title"),
    [(60.0, "Not taken in time"), (3600.0, "Worker unavailable")],
    ids=["short", "long"],
)
def test_how_long_its_letters_waited_is_the_ttl_as_configured(ttl_seconds: float, title: str) -> None:
    gone_before = gone(NOON - 30 * MINUTE, NOON - 8 * MINUTE)
    assert title_in(GROUP, gone_before, {}, ttl_seconds=ttl_seconds) == f"{title}: worker-python"
    gone_later = gone(NOON + 3 * MINUTE, NOON + 9 * MINUTE)
    assert title_in(GROUP, gone_later, {}, ttl_seconds=ttl_seconds) == "Not taken in time: worker-python"
