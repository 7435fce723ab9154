"""The auditor finds each way to break a promise, and nothing where all were kept."""

from dataclasses import replace
from datetime import UTC, datetime
from itertools import count

from sandbox.auditor.completion_queue import read_completion
from sandbox.auditor.ledger import Change, CompletionEvent, Ledger, TerminalRow, Violation
from sandbox.auditor.outages import Outages

_numbers = count(1)
MARGIN, FIRST = 4.0, 100.0
LIFE = ("requested", "scheduling", "scheduled")


def changes(execution_id: int, *statuses: str | None) -> list[Change]:
    return [
        Change(number=next(_numbers), execution_id=execution_id, action_ref="core.echo", status=status)
        for status in statuses
    ]


def completion(execution_id: int, message_id: str) -> CompletionEvent:
    return CompletionEvent(
        execution_id=execution_id, message_id=message_id, status="failed", source="dlq-handler"
    )


def row(execution_id: int, *, minute: int = 0, result: str = "a") -> TerminalRow:
    return TerminalRow(
        id=execution_id,
        status="failed",
        updated=datetime(2026, 1, 1, 0, minute, tzinfo=UTC),
        result_md5=result,
    )


def a_ledger() -> Ledger:
    return Ledger(Outages(MARGIN))


def a_ledger_of_one_end() -> Ledger:
    ledger = a_ledger()
    ledger.take_changes(changes(1, *LIFE, "failed"))
    ledger.take_rows({1: row(1)})
    ledger.take_completion(completion(1, "a"), at=FIRST)
    return ledger


def broken(ledger: Ledger) -> list[Violation]:
    return ledger.violations(ledger.completion_counts())


def test_an_end_with_its_completion_event_keeps_every_promise() -> None:
    ledger = a_ledger_of_one_end()
    audit = ledger.audit()
    assert (audit.dispatched, audit.open, audit.ends, audit.terminal) == (1, (), 1, 1)
    assert (audit.silent, audit.doubled, audit.repeats, audit.changed) == ((), (), 0, ())
    assert broken(ledger) == []


def test_what_was_dispatched_and_never_ended_is_open() -> None:
    ledger = a_ledger()
    ledger.take_changes(changes(1, *LIFE, "running"))
    ledger.take_changes(changes(2, "requested"))
    audit = ledger.audit()
    assert (audit.dispatched, audit.open) == (1, (1,))


def test_what_was_dispatched_to_a_retired_worker_is_counted_by_itself() -> None:
    ledger = a_ledger()
    for execution_id, worker_id in ((1, 7), (2, 7), (3, 8)):
        ledger.take_changes(replace(one, worker_id=worker_id) for one in changes(execution_id, *LIFE))
    ledger.take_changes(changes(2, "failed"))
    assert (ledger.audit().retired, ledger.audit().retired_open) == (0, ())
    ledger.retired_workers = {7}
    assert (ledger.audit().retired, ledger.audit().retired_open) == (2, (1,))


def test_an_end_without_a_completion_event_is_silent() -> None:
    ledger = a_ledger()
    ledger.take_changes(changes(1, *LIFE, "failed"))
    assert ledger.audit().silent == (1,)


def test_a_second_id_for_one_end_is_a_second_event() -> None:
    ledger = a_ledger_of_one_end()
    ledger.take_completion(completion(1, "b"), at=FIRST)
    assert ledger.audit().doubled == (1,)
    assert broken(ledger) == [Violation(promise="announced once", execution_ids=(1,))]


def test_the_same_id_again_is_a_second_event_without_an_outage() -> None:
    ledger = a_ledger_of_one_end()
    assert ledger.take_completion(completion(1, "a"), at=FIRST)
    audit = ledger.audit()
    assert (audit.repeats, audit.doubled) == (0, (1,))
    assert broken(ledger) == [Violation(promise="announced once", execution_ids=(1,))]


def test_the_same_id_again_is_a_repeat_and_allowed_when_something_was_lost_between() -> None:
    ledger = a_ledger_of_one_end()
    ledger.losses.lost("sidecar", FIRST)
    assert ledger.take_completion(completion(1, "a"), at=FIRST + 9)
    audit = ledger.audit()
    assert (audit.repeats, audit.doubled) == (1, ())
    assert broken(ledger) == []


def test_what_the_broker_hands_out_again_is_not_even_a_repeat() -> None:
    ledger = a_ledger_of_one_end()
    ledger.take_completion(completion(1, "a"), at=FIRST, redelivered=True)
    assert ledger.audit().repeats == 0


def test_an_event_without_an_end_is_one_too_many() -> None:
    ledger = a_ledger()
    ledger.take_changes(changes(1, *LIFE, "running"))
    ledger.take_completion(completion(1, "a"), at=FIRST)
    assert ledger.audit().doubled == (1,)


def test_an_event_that_arrived_after_the_changes_were_read_breaks_nothing_yet() -> None:
    ledger = a_ledger_of_one_end()
    counted = ledger.completion_counts()
    ledger.take_completion(completion(2, "b"), at=FIRST)
    assert ledger.violations(counted) == []


def test_a_row_whose_stamp_moved_was_changed() -> None:
    ledger = a_ledger_of_one_end()
    ledger.take_rows({1: row(1, minute=1)})
    assert ledger.audit().changed == (1,)
    assert broken(ledger) == [Violation(promise="terminal rows unchanged", execution_ids=(1,))]


def test_a_row_whose_result_differs_was_changed() -> None:
    ledger = a_ledger_of_one_end()
    ledger.take_rows({1: row(1, result="b")})
    assert ledger.audit().changed == (1,)


def test_a_deleted_terminal_row_counts_as_changed() -> None:
    ledger = a_ledger_of_one_end()
    ledger.take_rows({})
    assert ledger.audit().changed == (1,)


def test_a_row_that_came_back_and_ended_again_between_two_looks_was_changed() -> None:
    ledger = a_ledger_of_one_end()
    ledger.take_changes(changes(1, "running", "completed"))
    ledger.take_rows({1: replace(row(1), status="failed")})
    assert ledger.audit().changed == (1,)


def test_a_result_written_after_the_end_changes_the_row_without_a_status() -> None:
    ledger = a_ledger_of_one_end()
    ledger.take_changes(changes(1, None))
    assert ledger.audit().changed == (1,)


def test_a_change_that_is_read_twice_counts_once() -> None:
    ledger, life = a_ledger(), changes(1, *LIFE, "failed")
    assert ledger.take_changes(life) == life
    assert ledger.take_changes(life) == []
    assert ledger.audit().ends == 1


def test_an_unreadable_event_is_one_too_many() -> None:
    ledger = a_ledger()
    ledger.take_completion(read_completion(b"no json"), at=FIRST)
    assert ledger.audit().doubled == (0,)
