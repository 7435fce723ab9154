"""The story of one execution, put together from whatever is on record."""

from typing import Any

import pytest

from dlq_handler.dead_letters.decision import FAILED_BY, Outcome
from dlq_handler.endings.outbox_sql import OutboxProblem
from dlq_handler.explain.records import OutboxRecord, Records
from dlq_handler.explain.story import Kind, Moment, story_of
from dlq_handler.host.story_sql import ExecutionFacts, Transition
from dlq_handler.timeouts.decision import StaleOutcome
from tests.support.builders import NOON
from tests.support.records import a_letter_record, a_stale_record, after, an_outbox_record


def the_row(status: str = "failed", **changes: Any) -> ExecutionFacts:
    """Requested at noon, dispatched to worker 7 a second later."""
    fields: dict[str, Any] = {
        "id": 1,
        "status": status,
        "is_terminal": status in {"failed", "completed", "abandoned", "cancelled", "timeout"},
        "action_ref": "core.echo",
        "created": NOON,
        "updated": after(302),
        "worker_id": 7,
    }
    return ExecutionFacts(**(fields | changes))


def moments_of(execution: ExecutionFacts | None, **records: Any) -> list[Moment]:
    return story_of(Records(execution=execution, now=after(600), **records))


def kinds(moments: list[Moment]) -> list[Kind]:
    return [moment.kind for moment in moments]


HISTORY = [
    Transition(at=NOON, before=None, after="requested"),
    Transition(at=after(0.5), before="requested", after="scheduling"),
    Transition(at=after(1), before="scheduling", after="scheduled", worker_id=7),
]


def test_letter_that_failed_it_is_shown_from_the_request_to_the_completion_event() -> None:
    moments = moments_of(the_row(), letters=[a_letter_record()], outbox=[an_outbox_record()])
    assert kinds(moments) == [
        Kind.CREATED,
        Kind.DISPATCHED,
        Kind.DEAD_LETTERED,
        Kind.DECIDED,
        Kind.CHANGED,
        Kind.PUBLISHED,
    ]
    texts = [moment.text for moment in moments]
    assert texts == [
        "core.echo",
        "to worker 7",
        "in worker.7.executions: expired",
        "dead letter 12: failed: its dispatch died",
        "scheduled → failed, by dlq-handler",
        "execution.completed published, confirmed by the broker",
    ]
    assert moments[3].by == "one"
    assert moments[1].evidence == {"attempt": after(1).isoformat()}
    assert moments[2].evidence == {"x_death": {"count": 1}}
    assert moments[3].evidence == {"status": "scheduled"}


def test_history_of_the_host_adds_its_steps_and_repeats_none_of_ours() -> None:
    history = [*HISTORY, Transition(at=after(302), before="scheduled", after="failed")]
    moments = moments_of(the_row(), letters=[a_letter_record()], outbox=[an_outbox_record()], history=history)
    assert kinds(moments) == [
        Kind.CREATED,
        Kind.MOVED,
        Kind.DISPATCHED,
        Kind.DEAD_LETTERED,
        Kind.DECIDED,
        Kind.CHANGED,
        Kind.PUBLISHED,
    ]


def test_decision_is_dated_by_the_clock_and_its_change_by_the_transaction() -> None:
    """Half a second apart, and still one change."""
    row = the_row("abandoned", updated=after(301.5))
    moments = moments_of(row, decisions=[a_stale_record(StaleOutcome.ABANDONED)])
    assert kinds(moments) == [Kind.CREATED, Kind.DECIDED, Kind.CHANGED]
    assert moments[2].text == "running → abandoned, by dlq-handler"


def test_death_never_comes_before_its_dispatch() -> None:
    """The broker dates it in whole seconds."""
    letter = a_letter_record(attempt_updated_at=after(1.9), died_at=after(1).replace(microsecond=0))
    assert kinds(moments_of(the_row(), letters=[letter]))[:3] == [
        Kind.CREATED,
        Kind.DISPATCHED,
        Kind.DEAD_LETTERED,
    ]


def test_end_without_our_record_is_of_another_component() -> None:
    row = the_row("failed", error="Worker queue TTL expired", ended_by="execution_timeout_monitor")
    [_, ended] = moments_of(row)
    assert ended.kind is Kind.ENDED
    assert ended.text == "failed, by another component: Worker queue TTL expired"
    assert ended.by == "execution_timeout_monitor"
    [*_, same] = moments_of(
        row, history=[*HISTORY, Transition(at=row.updated, before="scheduled", after="failed")]
    )
    assert same == ended


def test_the_worker_that_completed_it_is_named() -> None:
    [*_, ended] = moments_of(the_row("completed"))
    assert ended.text == "completed, by worker 7"


def test_a_repeated_delivery_is_counted_in_words() -> None:
    def text(repeats: int) -> str:
        moments = moments_of(the_row(), letters=[a_letter_record(repeats=repeats)])
        return next(one.text for one in moments if one.kind is Kind.DECIDED)

    assert "delivered again once" in text(1)
    assert "delivered again 2 times" in text(2)


def test_late_worker_that_ends_it_after_us_is_another_end() -> None:
    row = the_row("completed", updated=after(310))
    reverted_by_worker = a_stale_record(
        StaleOutcome.REVERTED_BY_WORKER, attempt_updated_at=after(302), decided_at=after(400)
    )
    moments = moments_of(row, letters=[a_letter_record()], decisions=[reverted_by_worker])
    assert kinds(moments)[-3:] == [Kind.CHANGED, Kind.ENDED, Kind.REVERTED_BY_WORKER]


OUR_STEP = Transition(at=after(302), before="scheduled", after="failed")


@pytest.mark.parametrize("history", [None, [*HISTORY, OUR_STEP]], ids=["without history", "with history"])
def test_row_that_is_touched_after_our_end_is_still_ended_by_us(history: list[Transition] | None) -> None:
    """Deleting its worker moves a row whose status stays."""
    row = the_row(updated=after(400), worker_id=None, ended_by=FAILED_BY, error="Worker queue TTL expired")
    moments = moments_of(row, letters=[a_letter_record()], history=history)
    assert kinds(moments)[-2:] == [Kind.CHANGED, Kind.TOUCHED]
    assert moments[-1].text == "still failed"
    assert not [moment for moment in moments if "not by us" in moment.text]


def test_end_of_ours_is_ours_though_its_record_was_deleted() -> None:
    row = the_row(ended_by=FAILED_BY)
    for history in (None, [*HISTORY, OUR_STEP]):
        [*_, ended] = moments_of(row, history=history)
        assert (ended.kind, ended.text) == (Kind.ENDED, "failed, by dlq-handler")


def test_result_that_another_component_overwrote_is_named() -> None:
    [*_, last] = moments_of(the_row(updated=after(310), error="exit code 1"), letters=[a_letter_record()])
    assert (last.kind, last.text) == (Kind.ENDED, "failed, with another's result: exit code 1")


def test_end_by_another_component_appears_once_though_its_row_is_touched() -> None:
    row = the_row(updated=after(400), worker_id=None, error="Worker queue TTL expired")
    moments = moments_of(row, history=[*HISTORY, OUR_STEP])
    assert kinds(moments)[-2:] == [Kind.ENDED, Kind.TOUCHED]
    assert moments[-2].at == after(302)
    assert moments[-2].text == "failed, by another component: Worker queue TTL expired"


def test_scheduled_row_that_is_touched_was_dispatched_once() -> None:
    row = the_row("scheduled", updated=after(400), worker_id=None)
    for moments in (
        moments_of(row, history=HISTORY),
        moments_of(row, letters=[a_letter_record(Outcome.STALE_ATTEMPT)]),
    ):
        assert kinds(moments).count(Kind.DISPATCHED) == 1
        assert moments[-1].kind is Kind.TOUCHED


def test_shadow_decision_is_marked_and_changed_nothing() -> None:
    moments = moments_of(
        the_row("scheduled", updated=after(1)),
        letters=[a_letter_record(is_shadow=True)],
        decisions=[a_stale_record(StaleOutcome.FAILED, is_shadow=True)],
    )
    assert Kind.CHANGED not in kinds(moments)
    assert [moment.is_shadow for moment in moments if moment.kind is Kind.DECIDED] == [True, True]


@pytest.mark.parametrize(
    ("entry", "kind", "text"),
    [
        (an_outbox_record(attempts=3), Kind.PUBLISHED, "confirmed by the broker at attempt 3"),
        (
            an_outbox_record(problem=OutboxProblem.WITHHELD, last_error="answered already"),
            Kind.PUBLISHED,
            "execution.completed was withheld: answered already",
        ),
        (an_outbox_record(confirmed_at=None, attempts=0), Kind.UNCONFIRMED, "no replica has claimed it"),
        (
            an_outbox_record(
                confirmed_at=None,
                attempts=2,
                problem=OutboxProblem.UNROUTABLE,
                last_error="NO_ROUTE",
                next_attempt_at=after(310),
            ),
            Kind.UNCONFIRMED,
            "unroutable: NO_ROUTE at attempt 2; tried again at 2026-11-16 12:05:10Z",
        ),
        (
            an_outbox_record(confirmed_at=None, lease_holder="one 4711", lease_until=after(360)),
            Kind.UNCONFIRMED,
            "held for publishing by one 4711 until 2026-11-16 12:06:00Z",
        ),
    ],
    ids=["confirmed late", "withheld", "untouched", "unroutable", "leased"],
)
def test_completion_event_has_its_state(entry: OutboxRecord, kind: Kind, text: str) -> None:
    [*_, moment] = moments_of(None, outbox=[entry])
    assert moment.kind is kind
    assert text in moment.text


@pytest.mark.parametrize("outcome", StaleOutcome)
def test_every_decision_of_the_monitor_has_its_words(outcome: StaleOutcome) -> None:
    decision = a_stale_record(outcome, error="22023: too long", next_attempt_at=after(400))
    moment = next(
        moment for moment in moments_of(None, decisions=[decision]) if moment.kind is not Kind.CHANGED
    )
    assert "because" in moment.text
    assert moment.by == "two"


@pytest.mark.parametrize("outcome", Outcome)
def test_every_letter_appears_and_only_a_failed_one_changed_anything(outcome: Outcome) -> None:
    moments = moments_of(None, letters=[a_letter_record(outcome, error="e", next_attempt_at=after(400))])
    assert any(outcome.value in moment.text for moment in moments)
    assert (Kind.CHANGED in kinds(moments)) is (outcome is Outcome.FAILED)


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (the_row("running", started_at=after(5)), "running on worker 7"),
        (the_row("scheduled", updated=after(1)), "to worker 7"),
        (the_row("scheduling", updated=after(1), worker_id=None), "scheduling"),
        (the_row("hibernating", worker_id=None), "hibernating"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_open_row_shows_its_state(row: ExecutionFacts, text: str) -> None:
    assert moments_of(row)[-1].text == text


def test_nothing_on_record_is_known_as_such() -> None:
    assert Records(execution=None, now=NOON).is_unknown
    assert not Records(execution=None, letters=[a_letter_record()], now=NOON).is_unknown
