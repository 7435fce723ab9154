"""A game day without servers: what is dispatched is judged as any dispatch, and what was seen is told in words."""

import json
from datetime import timedelta
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from dlq_handler.domain.game_day import Clock, CreatedExecution, GameDayPlan, Seen, SeenNotice, dispatch
from dlq_handler.domain.game_day_report import Conclusion, GameDayReport, report
from dlq_handler.domain.game_day_svg import svg
from dlq_handler.domain.gate import ClockLook
from dlq_handler.domain.judge_dead_letter import judge_dead_letter
from dlq_handler.domain.letter_record import LetterRecord
from dlq_handler.domain.story_records import ExecutionFacts, OutboxRecord, Records
from dlq_handler.domain.topology import Blueprint
from dlq_handler.domain.verdict import Fail, Outcome
from dlq_handler.domain.worker import WorkerQueueNames
from dlq_handler.sandbox.attune import messages
from tests.support.builders import NOON, a_dead_letter, a_raw_letter, an_execution, circumstances, read

ROW = CreatedExecution(id=41, updated=NOON)
PLAN = GameDayPlan(blueprint=Blueprint(), notice_key="execution.completed", ttl_ms=5000, limit_seconds=30)


def later(seconds: float) -> Any:
    return NOON + timedelta(seconds=seconds)


def a_record(**changes: Any) -> LetterRecord:
    letter = a_dead_letter(execution_id=41, worker_id=-1)
    same = {
        name: getattr(letter, name) for name in LetterRecord.__dataclass_fields__ if hasattr(letter, name)
    }
    fields: dict[str, Any] = {
        "id": 9,
        "outcome": Outcome.FAILED,
        "why": "its dispatch died",
        "error": None,
        "tries": 0,
        "next_try_at": None,
        "repeats": 0,
        "received_at": later(5.02),
        "judged_at": later(5.03),
        "instance": "one",
        "evidence": {},
        "is_shadow": False,
    }
    return LetterRecord(**(same | fields | changes))


def an_end(**changes: Any) -> ExecutionFacts:
    fields: dict[str, Any] = {
        "id": 41,
        "status": "failed",
        "is_terminal": True,
        "action_ref": "dlq_handler.game_day",
        "created": NOON,
        "updated": later(5.03),
        "ended_by": "dlq_handler",
    }
    return ExecutionFacts(**(fields | changes))


OPEN = an_end(status="scheduled", is_terminal=False, updated=NOON, ended_by=None)


def an_entry(**changes: Any) -> OutboxRecord:
    fields: dict[str, Any] = {
        "message_id": "m",
        "routing_key": "execution.completed",
        "created_at": later(5.03),
        "attempts": 1,
        "confirmed_at": None,
        "next_try_at": later(6),
        "lease_holder": None,
        "lease_until": None,
        "last_error": None,
        "is_withheld": False,
    }
    return OutboxRecord(**(fields | changes))


def seen(execution: ExecutionFacts | None = None, *letters: LetterRecord, **changes: Any) -> Seen:
    outbox = changes.pop("outbox", ())
    fields: dict[str, Any] = {
        "execution_id": 41,
        "dispatched_at": NOON,
        "expired_at": later(5),
        "consumers": 1,
        "records": Records(execution=execution, letters=letters, outbox=outbox, now=later(6)),
    }
    return Seen(**(fields | changes))


RESCUED = seen(an_end(), a_record(), notice=SeenNotice(at=later(5.1), by="dlq-handler"))


def test_the_dispatch_has_the_shape_of_attunes_own() -> None:
    ours = json.loads(dispatch(ROW, {"held_by": "me"}).body)
    stock = json.loads(
        messages.dispatch(
            execution_id=41, worker_id=-1, action_ref="dlq_handler.game_day", scheduled_at=NOON, config={}
        ).body
    )

    assert ours.keys() == stock.keys()
    assert ours["message_type"] == stock["message_type"]
    assert ours["payload"] | {"config": {}} == stock["payload"]


@pytest.mark.parametrize("queue_pattern", ["worker.{id}.executions", "w-{id}"])
def test_its_letter_takes_the_real_path(queue_pattern: str) -> None:
    names = WorkerQueueNames(queue_pattern=queue_pattern)
    message = dispatch(ROW, {})
    letter = read(a_raw_letter(message.body, message_id=str(message.message_id)))
    row = an_execution(id=41, worker_id=None, updated=NOON, action_ref="dlq_handler.game_day")

    assert letter.is_game_day
    assert names.owner_of(names.queue(-1)) == names.owner_of_key(names.routing_key(-1)) == -1
    assert isinstance(judge_dead_letter(letter, row, {}, circumstances()), Fail)


@pytest.mark.parametrize(
    "other",
    [
        a_dead_letter(worker_id=-1),
        a_dead_letter(action_ref="dlq_handler.game_day"),
        a_dead_letter(worker_id=-2, action_ref="dlq_handler.game_day"),
    ],
)
def test_only_both_marks_together_make_a_letter_of_a_game_day(other: Any) -> None:
    assert not other.is_game_day


def test_no_other_negative_id_is_a_worker() -> None:
    assert WorkerQueueNames().owner_of("worker.-2.executions") is None
    assert WorkerQueueNames().owner_of("worker.-01.executions") is None


def test_a_rescue_is_timed_step_by_step() -> None:
    told = report(PLAN, RESCUED)

    assert told.conclusion is Conclusion.RESCUED
    assert [(step.name, step.took_seconds) for step in told.steps] == [
        ("dispatched", None),
        ("expired", 5.0),
        ("judged", pytest.approx(0.03)),
        ("announced", pytest.approx(0.07)),
    ]
    assert (told.execution_id, told.letter_id) == (41, 9)


def test_the_error_between_two_clocks_makes_no_step_go_backwards() -> None:
    told = report(
        PLAN, seen(an_end(), a_record(judged_at=later(4.999)), notice=SeenNotice(at=later(5.1), by=None))
    )

    assert told.steps[2].took_seconds == 0.0


NOT, UNKNOWN = Conclusion.NOT_RESCUED, Conclusion.CANNOT_TELL


@pytest.mark.parametrize(
    ("what", "conclusion", "says", "advises"),
    [
        (
            Seen(consumers=0),
            NOT,
            "nobody takes letters from 'attune.dlx.queue'; nothing was",
            "dlq-handler run",
        ),
        (
            Seen(consumers=0, brake="tripped by x"),
            NOT,
            "nobody takes letters",
            "the brake holds: tripped by x",
        ),
        (Seen(), NOT, "there is no queue 'attune.dlx.queue'", "dlq-handler run"),
        (seen(OPEN, expired_at=None), NOT, "nothing came out of exchange 'attune.dlx'", "topology check"),
        (seen(OPEN), NOT, "its letter was not judged within 30 s of its expiry", "/readyz"),
        (seen(OPEN, brake="tripped"), NOT, "its letter was not judged", "the brake holds: tripped"),
        (seen(OPEN, consumers=0), NOT, "nobody takes letters from 'attune.dlx.queue' any more", "/readyz"),
        (seen(OPEN, a_record(outcome=Outcome.STALE_ATTEMPT)), NOT, "was judged stale_attempt", None),
        (seen(OPEN, a_record(is_shadow=True)), NOT, "only shadows", None),
        (seen(an_end(ended_by=None)), NOT, "a stock executor took the letter", "intake.queue"),
        (seen(an_end(ended_by=None)), NOT, "; nobody announced it", "intake.queue"),
        (
            seen(an_end(ended_by=None), notice=SeenNotice(at=later(11), by="dlq-handler")),
            NOT,
            "; only dlq-handler announced it, later",
            "intake.queue",
        ),
        (
            seen(an_end(ended_by=None), notice=SeenNotice(at=later(11), by=None)),
            NOT,
            "; only somebody announced it, later",
            "intake.queue",
        ),
        (
            seen(an_end(ended_by="execution_timeout_monitor")),
            NOT,
            "ended by execution_timeout_monitor",
            "/readyz",
        ),
        (seen(an_end(), a_record()), NOT, "failed by its letter, but not announced", "/readyz"),
        (
            seen(an_end(), a_record(), outbox=[an_entry(last_error="NO_ROUTE")]),
            NOT,
            "not announced within 30 s of its expiry: NO_ROUTE",
            "/readyz",
        ),
        (
            seen(an_end(), a_record(), outbox=[an_entry(confirmed_at=later(5.1))]),
            NOT,
            "confirmed, but not with key 'execution.completed'",
            "another dlq_handler.outbox.routing_key",
        ),
        (seen(None), UNKNOWN, "row is gone", None),
        (seen(OPEN, trouble="the connection was lost"), UNKNOWN, "the connection was lost", None),
    ],
)
def test_what_went_wrong_is_told_with_what_to_do(
    what: Seen, conclusion: Conclusion, says: str, advises: str | None
) -> None:
    told = report(PLAN, what)

    assert told.conclusion is conclusion
    assert says in told.why
    assert advises in told.advice if advises and told.advice else told.advice is advises


def test_a_shadows_record_does_not_hide_the_real_one() -> None:
    both = seen(
        an_end(), a_record(id=8, is_shadow=True), a_record(), notice=SeenNotice(at=later(5.1), by=None)
    )

    assert report(PLAN, both).letter_id == 9


def test_moments_of_ours_are_put_on_the_databases_clock() -> None:
    clock = Clock(look=ClockLook(database_time=NOON, asked_at=10.0, answered_at=10.5))

    assert clock.error_seconds == 0.25
    assert clock.moment(11.25) == later(1)


def test_the_plan_names_everything_that_is_made() -> None:
    own = GameDayPlan(
        blueprint=Blueprint(intake_queue="mine"), notice_key="done", ttl_ms=700, limit_seconds=1
    )
    told = "\n".join((*own.passing(), *own.staying()))

    for name in (
        "'worker.-1.executions'",
        "x-message-ttl=700",
        "'mine'",
        "dlq_handler.game_day.queue",
        "'done'",
    ):
        assert name in told
    assert "'execution.cancel.worker.-1'" in told
    assert "dlq_handler.game_day" in told


@pytest.mark.parametrize(
    "told",
    [
        report(PLAN, RESCUED),
        report(PLAN, Seen(consumers=0)),
        report(PLAN, seen(OPEN, a_record(outcome=Outcome.STALE_ATTEMPT, why='<&"' + "x" * 500))),
    ],
)
def test_the_timeline_is_a_drawing_that_parses_and_stays_within_its_frame(told: GameDayReport) -> None:
    root = ET.fromstring(svg(told))
    _, _, width, height = map(float, root.attrib["viewBox"].split())

    named = ET.tostring(root, encoding="unicode", method="text")
    assert told.conclusion.value in named
    assert all(step.name in named for step in told.steps)
    for node in root.iter():
        assert all(0 <= float(node.attrib[x]) <= width for x in ("x", "cx", "x1", "x2") if x in node.attrib)
        assert all(0 <= float(node.attrib[y]) <= height for y in ("y", "cy", "y1", "y2") if y in node.attrib)
