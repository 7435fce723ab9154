"""Reading letters: what a stock letter holds, and that no sender can make the reader raise or lie."""

import gc
import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_handler.broker.delivery import CutBody, RawMessage
from dlq_handler.dead_letters.letter import ParseProblem
from tests.support.builders import MESSAGE_ID, NOON, a_body, a_raw_letter, an_x_death, read


def test_stock_letter_is_read_whole() -> None:
    letter = read(a_raw_letter())
    assert letter.parse_error is None
    assert (letter.execution_id, letter.worker_id, letter.attempt_updated_at) == (1, 7, NOON)
    assert (letter.queue, letter.reason) == ("worker.7.executions", "expired")
    assert letter.died_at == NOON.replace(microsecond=0) + timedelta(minutes=5)
    assert letter.message_id == MESSAGE_ID


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", ParseProblem.BODY_NOT_JSON),
        (b"not json", ParseProblem.BODY_NOT_JSON),
        (b"\xff\xfe", ParseProblem.BODY_NOT_UTF8),
        (b"[]", ParseProblem.BODY_NOT_AN_ENVELOPE),
        (b"null", ParseProblem.BODY_NOT_AN_ENVELOPE),
        (b"7", ParseProblem.BODY_NOT_AN_ENVELOPE),
        (b'{"message_type": "ExecutionRequested"}', ParseProblem.PAYLOAD_MISSING),
        (b'{"payload": {"execution_id": 1}}', ParseProblem.MESSAGE_TYPE_MISSING),
        (b'{"message_type": 5, "payload": {}}', ParseProblem.MESSAGE_TYPE_MISSING),
        (
            b'{"message_type": "ExecutionRequested", "payload": {"execution_id": NaN}}',
            ParseProblem.BODY_NOT_JSON,
        ),
        (
            b'{"message_type": "ExecutionRequested", "payload": {"execution_id": 1, "x": Infinity}}',
            ParseProblem.BODY_NOT_JSON,
        ),
        (b"[" * 100_000, ParseProblem.BODY_NESTED_TOO_DEEPLY),
        (b'{"a":' * 50_000, ParseProblem.BODY_NESTED_TOO_DEEPLY),
        (b"1" * 5000, ParseProblem.BODY_NOT_JSON),
    ],
)
def test_body_that_is_no_envelope_is_a_flaw(body: bytes, problem: ParseProblem) -> None:
    letter = read(a_raw_letter(body))
    assert letter.parse_error
    assert letter.parse_problem is problem


@pytest.mark.parametrize("odd", ["7", True, False, 1.0, 1.5, 2**63, -(2**63) - 1, None, [1], {"id": 1}])
def test_odd_execution_id_is_a_flaw(odd: object) -> None:
    letter = read(a_raw_letter(a_body(execution_id=odd)))
    assert letter.execution_id is None
    assert "execution_id" in (letter.parse_error or "")
    expected = ParseProblem.EXECUTION_ID_NULL if odd is None else ParseProblem.EXECUTION_ID_NOT_INTEGER
    assert letter.parse_problem is expected


def test_missing_execution_id_is_a_flaw() -> None:
    body = a_body()
    del body["payload"]["execution_id"]
    letter = read(a_raw_letter(body))
    assert "missing" in (letter.parse_error or "")
    assert letter.parse_problem is ParseProblem.EXECUTION_ID_MISSING


@pytest.mark.parametrize("edge", [2**63 - 1, -(2**63), 0])
def test_every_64_bit_integer_is_an_execution_id(edge: int) -> None:
    assert read(a_raw_letter(a_body(execution_id=edge))).execution_id == edge


@pytest.mark.parametrize(
    "odd",
    [
        None,
        5,
        "",
        "yesterday",
        "2026-11-16T12:00:00",
        "2026-13-01T00:00:00Z",
        "0001-01-01T00:00:00+14:00",
        [],
    ],
)
def test_stamp_that_cannot_be_parsed_counts_as_absent(odd: object) -> None:
    letter = read(a_raw_letter(a_body(scheduled_attempt_updated_at=odd)))
    assert letter.attempt_updated_at is None
    assert letter.parse_error is None


def test_stamp_keeps_its_microseconds_whatever_its_offset() -> None:
    letter = read(a_raw_letter(a_body(scheduled_attempt_updated_at="2026-11-16T14:00:00.123456+02:00")))
    assert letter.attempt_updated_at == NOON


def test_undecodable_properties_make_a_flaw_and_a_key_of_their_own() -> None:
    first = read(a_raw_letter(undecodable="timestamp", raw_properties=b"1", message_id=None, headers={}))
    second = read(a_raw_letter(undecodable="timestamp", raw_properties=b"2", message_id=None, headers={}))
    assert first.parse_error == "timestamp"
    assert first.parse_problem is ParseProblem.PROPERTIES_UNDECODABLE
    assert first.key != second.key


def test_undecodable_properties_come_before_a_problem_of_the_body() -> None:
    letter = read(a_raw_letter(b"not json", undecodable="timestamp", raw_properties=b"1"))
    assert (letter.parse_error, letter.parse_problem) == ("timestamp", ParseProblem.PROPERTIES_UNDECODABLE)


def test_newest_death_is_taken_by_time_not_by_position() -> None:
    old = an_x_death(queue="worker.1.executions", time=NOON)
    new = an_x_death(queue="worker.2.executions", time=NOON + timedelta(hours=1))
    for order in ([old, new], [new, old]):
        assert read(a_raw_letter(headers={"x-death": order})).queue == "worker.2.executions"


def test_last_death_headers_win_over_times() -> None:
    headers = {
        "x-death": [an_x_death(queue="a", time=NOON), an_x_death(queue="b", time=NOON + timedelta(hours=1))],
        "x-last-death-queue": "a",
        "x-last-death-reason": "expired",
    }
    letter = read(a_raw_letter(headers=headers))
    assert (letter.queue, letter.died_at) == ("a", NOON)


def test_letter_without_any_death_is_read() -> None:
    letter = read(a_raw_letter(headers={}))
    assert letter.parse_error is None
    assert (letter.queue, letter.reason, letter.died_at) == (None, "none", None)


def test_same_letter_has_the_same_key_and_another_death_another() -> None:
    again = read(a_raw_letter(redelivered=True))
    died_twice = read(a_raw_letter(headers={"x-death": [an_x_death(count=2)]}))
    assert read(a_raw_letter()).key == again.key != died_twice.key


@pytest.mark.parametrize(
    "other",
    [
        a_raw_letter(message_id="another"),
        a_raw_letter(routing_key="another"),
        a_raw_letter(a_body(execution_id=2)),
        a_raw_letter(a_body(scheduled_attempt_updated_at="2026-11-16T12:00:00.123457Z")),
        a_raw_letter(headers={"x-death": [an_x_death(reason="rejected")]}),
    ],
)
def test_different_letters_have_different_keys(other: object) -> None:
    assert read(a_raw_letter()).key != read(other).key  # type: ignore[arg-type]  # parametrize loses the type


def test_body_is_cut_but_its_size_is_kept() -> None:
    body = a_body(config={"text": "x" * 100_000})
    letter = read(a_raw_letter(body))
    assert letter.parse_error is None
    assert len(letter.body) == 65536 < letter.body_size


def test_text_that_postgresql_cannot_store_is_escaped() -> None:
    letter = read(a_raw_letter(a_body(action_ref="a\x00b\ud800"), routing_key="k\x00"))
    assert letter.action_ref == "a\\u0000b\\ud800"
    assert letter.routing_key == "k\\u0000"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
header_values = json_values | st.binary() | st.datetimes() | st.datetimes(timezones=st.just(UTC))
deaths = st.lists(
    st.dictionaries(
        st.sampled_from(["queue", "reason", "time", "count", "exchange", "routing-keys"]), header_values
    )
    | header_values
)
headers = st.dictionaries(
    st.sampled_from(["x-first-death-queue", "x-last-death-queue", "x-last-death-reason", "x-other"]),
    header_values,
)


@given(
    st.binary()
    | st.builds(
        lambda fields: a_body(**fields),
        st.dictionaries(st.sampled_from(list(a_body()["payload"])), json_values),
    ),
    headers,
    deaths | header_values,
)
def test_no_letter_makes_the_reader_raise(body: object, some: dict[str, object], x_death: object) -> None:
    letter = read(a_raw_letter(body, headers=some | {"x-death": x_death}))
    assert letter.key
    for text in (
        letter.queue,
        letter.reason,
        letter.action_ref,
        letter.parse_error,
        letter.first_death_queue,
    ):
        assert text is None or ("\x00" not in text and text.encode())
    assert letter.died_at is None or isinstance(letter.died_at, datetime)
    assert (letter.parse_problem is None) == (letter.parse_error is None)


def test_an_error_of_the_reader_itself_makes_an_unreadable_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise LookupError("quotes what a sender wrote")

    monkeypatch.setattr("dlq_handler.dead_letters.parse.newest_death", fail)
    letter = read(a_raw_letter())
    assert letter.parse_error == "cannot be read: LookupError"
    assert letter.parse_problem is ParseProblem.PARSER_ERROR
    assert letter.key
    assert letter.body_size == len(letter.body)


def cut(body: bytes, kept: int) -> RawMessage:
    """The letter with this body, of which only the beginning was kept."""
    whole = CutBody(size=len(body), sha256=hashlib.sha256(body).hexdigest())
    return a_raw_letter(body[:kept], cut=whole, message_id=None)


LARGE = json.dumps(a_body(config="x" * 5000)).encode()


def test_of_a_large_body_the_fields_at_its_beginning_are_read() -> None:
    letter = read(cut(LARGE, 1000))
    assert letter.parse_error is None
    assert (letter.message_type, letter.execution_id, letter.worker_id) == ("ExecutionRequested", 1, 7)
    assert letter.action_ref == "core.echo"
    assert (letter.body, letter.body_size) == (LARGE[:1000], len(LARGE))


def test_of_a_large_body_the_stamp_counts_as_absent_even_where_it_was_kept() -> None:
    assert read(a_raw_letter(LARGE)).attempt_updated_at == NOON
    assert read(cut(LARGE, len(LARGE))).attempt_updated_at is None


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"x" * 5000, ParseProblem.LARGE_BODY_WITHOUT_EXECUTION_ID),
        (
            b'{"message_type":"ExecutionRequested","payload":{"config":"' + LARGE,
            ParseProblem.LARGE_BODY_WITHOUT_EXECUTION_ID,
        ),
        (
            b'{"message_type":"Other","payload":{"config":"' + LARGE,
            ParseProblem.LARGE_BODY_WITHOUT_EXECUTION_ID,
        ),
        (
            b'{"payload":{"execution_id":5,"config":"' + LARGE,
            ParseProblem.LARGE_BODY_WITHOUT_MESSAGE_TYPE,
        ),
    ],
)
def test_a_large_body_that_does_not_begin_with_its_fields_is_unreadable(
    body: bytes, problem: ParseProblem
) -> None:
    letter = read(cut(body, 1000))
    assert letter.parse_problem is problem
    assert str(len(body)) in (letter.parse_error or "")


def test_large_bodies_that_differ_at_their_end_are_two_letters() -> None:
    one, other = cut(LARGE + b" ", 1000), cut(LARGE + b"\n", 1000)
    assert read(one).key == read(one).key != read(other).key
    odd_one, odd_other = (replace(raw, undecodable="timestamp", raw_properties=b"1") for raw in (one, other))
    assert read(odd_one).key != read(odd_other).key


def test_the_garbage_collector_rests_while_a_large_body_is_read() -> None:
    """It would run for every 700 values, and take ten times as long as the reading."""
    runs: list[object] = []
    raw = a_raw_letter(a_body(config=[[] for _ in range(50_000)]))
    gc.callbacks.append(lambda phase, info: runs.append(phase))
    try:
        letter = read(raw)
    finally:
        gc.callbacks.pop()
    assert letter.parse_error is None
    assert len(runs) < 10
    assert gc.isenabled()


def a_rejected_request(execution_id: int = 1, *, minute: int = 0, **changes: Any) -> RawMessage:
    body = a_body(execution_id=execution_id) | {"message_id": f"request-{minute}"}
    del body["payload"]["worker_id"]
    death = an_x_death(
        queue="attune.execution.requests.queue",
        reason="rejected",
        time=NOON.replace(microsecond=0) + timedelta(minutes=minute),
    )
    fields: dict[str, Any] = {
        "message_id": f"request-{minute}",
        "routing_key": "execution.requested",
        "headers": {"x-death": [death], "x-first-death-queue": death["queue"]},
    }
    return a_raw_letter(body, **(fields | changes))


def test_rejected_requests_of_one_execution_are_one_dead_letter() -> None:
    first, again = read(a_rejected_request(minute=0)), read(a_rejected_request(minute=15))
    assert first.key == again.key
    assert first.key != read(a_rejected_request(2)).key


def test_other_dead_letters_of_that_execution_are_not_that_dead_letter() -> None:
    keys = {
        read(a_rejected_request()).key,
        read(a_rejected_request(routing_key="execution.dispatch.worker.7")).key,
        read(
            a_rejected_request(headers={"x-death": [an_x_death(queue="attune.execution.requests.queue")]})
        ).key,
        read(a_raw_letter(a_body(execution_id=1), routing_key="execution.requested")).key,
    }
    assert len(keys) == 4
