"""The way of a letter: five boxes with times and gaps, broken steps in red with their reason, and one sentence."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from dlq_handler.dashboard.letter_path import Box, completion_event_of, in_one_sentence, path
from dlq_handler.dashboard.pages.execution import facts
from dlq_handler.dashboard.words import State
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.listing import LetterRecord
from dlq_handler.endings.outbox_sql import OutboxProblem
from dlq_handler.explain.records import OutboxRecord
from tests.support.records import a_letter_record, an_outbox_record

KEY = "execution.completed"
DIED = datetime(2026, 11, 16, 2, 31, tzinfo=UTC)
NOW = datetime(2026, 11, 16, 2, 58, tzinfo=UTC)
RECORD = a_letter_record(
    execution_id=4711,
    died_at=DIED,
    attempt_updated_at=DIED - timedelta(minutes=5),
    received_at=DIED + timedelta(seconds=0.2),
    decided_at=DIED + timedelta(seconds=0.3),
)
EVENT = an_outbox_record(
    created_at=RECORD.decided_at, confirmed_at=RECORD.decided_at + timedelta(seconds=0.2)
)


def boxes(record: LetterRecord = RECORD, *events: OutboxRecord) -> tuple[Box, ...]:
    event = completion_event_of(record, events, completed_key=KEY)
    return tuple(path(record, event, intake="attune.dlx.queue", now=NOW))


def test_a_letter_that_went_its_way_has_five_green_boxes_each_with_time_and_gap() -> None:
    shown = boxes(RECORD, EVENT)
    assert [box.step for box in shown] == ["Queue", "DLX", "DLQ", "Decision", "Event"]
    assert {box.state for box in shown} == {State.OK}
    assert [box.when for box in shown] == ["02:26:00", "02:31:00", "02:31:00", "02:31:00", "02:31:00"]
    assert [box.delta for box in shown] == [None, "+5 min", "+0.2 s", "+0.1 s", "+0.2 s"]


def test_its_sentence_has_all_steps() -> None:
    assert in_one_sentence(RECORD, EVENT) == (
        "Expired after 5 min in worker.7.executions; execution 4711 marked failed; "
        "completion event published 0.2 s later."
    )


def test_an_unpublished_completion_event_is_red_with_its_error() -> None:
    stuck = replace(EVENT, confirmed_at=None, problem=OutboxProblem.UNROUTABLE, last_error="NO_ROUTE")
    event = boxes(RECORD, stuck)[-1]
    assert (event.state, event.explanation) == (State.BAD, "unroutable: NO_ROUTE")
    assert in_one_sentence(RECORD, stuck).endswith("completion event not published yet.")


def test_a_withheld_completion_event_is_a_warning_with_its_reason() -> None:
    withheld = replace(EVENT, problem=OutboxProblem.WITHHELD, last_error="answered already")
    event = boxes(RECORD, withheld)[-1]
    assert (event.state, event.explanation) == (State.WARN, "withheld: answered already")
    assert "completion event" not in in_one_sentence(RECORD, withheld)


def test_a_completion_event_published_after_a_failed_attempt_is_green() -> None:
    later = replace(EVENT, problem=OutboxProblem.UNROUTABLE, last_error="NO_ROUTE")
    event = boxes(RECORD, later)[-1]
    assert (event.state, event.explanation) == (State.OK, None)


def test_a_decision_that_was_refused_is_red_and_says_why() -> None:
    refused = replace(
        RECORD, outcome=Outcome.UPDATE_FAILED, error="23514: check violated", next_attempt_at=NOW
    )
    decision = boxes(refused)[3]
    assert decision.state is State.BAD
    assert decision.explanation == "23514: check violated; reprocessed at 02:58:00"


def test_without_an_ended_execution_no_completion_event_is_missing() -> None:
    event = boxes(replace(RECORD, outcome=Outcome.ALREADY_TERMINAL))[-1]
    assert (event.state, event.what) == (State.UNKNOWN, "none")


def test_a_completion_event_that_is_not_on_record_is_unknown_and_not_green() -> None:
    assert boxes(RECORD)[-1].state is State.UNKNOWN


def test_a_letter_without_a_death_has_question_markers_and_no_green() -> None:
    bare = replace(
        RECORD, died_at=None, queue=None, first_death_queue=None, reason="none", attempt_updated_at=None
    )
    queue, exchange, *_ = boxes(bare)
    assert (queue.state, queue.what, exchange.when) == (State.UNKNOWN, "?", "?")
    assert in_one_sentence(bare, None).startswith("Came without a death on record; ")


def test_the_brokers_whole_seconds_never_make_a_step_come_before_the_one_before() -> None:
    assert boxes(replace(RECORD, died_at=RECORD.received_at + timedelta(seconds=0.8)))[2].delta == "+0.0 s"


def test_the_completion_event_of_another_decision_on_the_same_execution_is_not_this_ones() -> None:
    other = replace(EVENT, created_at=EVENT.created_at - timedelta(hours=1))
    assert boxes(RECORD, other)[-1].state is State.UNKNOWN


def test_a_request_that_went_out_before_is_no_completion_event_of_the_decision() -> None:
    asked = replace(
        EVENT,
        routing_key="execution.requested",
        created_at=RECORD.decided_at - timedelta(seconds=28),
        confirmed_at=RECORD.decided_at - timedelta(seconds=27),
    )
    shown = boxes(RECORD, asked, EVENT)[-1]
    assert (shown.what, shown.delta) == (KEY, "+0.2 s")
    assert boxes(RECORD, asked)[-1].state is State.UNKNOWN


def test_an_event_confirmed_before_the_decision_is_not_its_own() -> None:
    before = RECORD.decided_at - timedelta(seconds=5)
    earlier = replace(EVENT, created_at=before, confirmed_at=before + timedelta(seconds=1))
    assert completion_event_of(RECORD, [earlier], completed_key=KEY) is None


def test_of_two_completion_events_the_one_written_with_the_decision_is_shown() -> None:
    again = replace(EVENT, message_id="again", created_at=RECORD.decided_at + timedelta(seconds=9))
    assert completion_event_of(RECORD, [again, EVENT], completed_key=KEY) is EVENT


def test_a_decision_that_replaces_another_is_dated_after_its_completion_event() -> None:
    begun = replace(EVENT, created_at=RECORD.decided_at - timedelta(seconds=0.1))
    assert completion_event_of(RECORD, [begun], completed_key=KEY) is begun


def test_a_step_that_seems_to_come_before_the_one_it_follows_is_shown_as_it_is() -> None:
    assert boxes(replace(RECORD, decided_at=RECORD.received_at - timedelta(seconds=27)))[3].delta == "−27 s"


def test_evidence_that_is_a_list_is_shown_as_json() -> None:
    deaths = [{"queue": "worker.7.executions", "count": 1}]
    assert facts({"deaths": deaths, "explanation": "x", "late": True}) == [
        ("deaths", '[{"queue": "worker.7.executions", "count": 1}]'),
        ("explanation", "x"),
        ("late", "true"),
    ]


def test_shadow_mode_says_that_nothing_was_done() -> None:
    assert in_one_sentence(replace(RECORD, is_shadow=True), None).startswith("Shadow, nothing was done: ")


@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_outcome_has_its_words(outcome: Outcome) -> None:
    assert len(in_one_sentence(replace(RECORD, outcome=outcome), None)) > 40


def test_a_superseded_dead_letter_is_not_said_to_be_decided_by_another_one() -> None:
    """The execution was back in requested or scheduling: the scheduler sends it again."""
    text = in_one_sentence(replace(RECORD, outcome=Outcome.SUPERSEDED), None)
    assert "back with the scheduler" in text
    assert "another letter" not in text
