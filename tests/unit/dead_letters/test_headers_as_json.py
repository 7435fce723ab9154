"""Headers are kept for people, whatever a sender put into them."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlq_handler.dead_letters.parse import CUT, LONGEST, headers_as_json
from tests.support.builders import an_x_death

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.datetimes(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def kept(headers: dict[str, Any]) -> Any:
    return json.loads(headers_as_json(headers))


def test_stock_headers_are_kept_as_they_came() -> None:
    death = an_x_death(time=datetime(2026, 11, 16, 12, 5, tzinfo=UTC))
    headers = {"x-death": [death], "x-first-death-queue": "worker.7.executions", "retries": 3}
    assert kept(headers) == headers | {"x-death": [death | {"time": "2026-11-16T12:05:00+00:00"}]}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"\xff\x00", "\\xff\\u0000"),
        (Decimal("1.50"), "1.50"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        ("a\x00b", "a\\u0000b"),
        ("\ud800", "\\ud800"),
        ("smile \N{SLIGHTLY SMILING FACE}", "smile \N{SLIGHTLY SMILING FACE}"),
    ],
)
def test_what_json_or_the_database_has_no_word_for_is_written_out(value: object, shown: str) -> None:
    assert kept({"it": value}) == {"it": shown}


def test_of_headers_without_end_the_first_are_kept_and_the_rest_is_counted() -> None:
    text = headers_as_json({f"header {n}": "x" * 400 for n in range(100)})
    assert len(text) <= LONGEST
    found = json.loads(text)
    assert found["header 0"] == "x" * 400
    assert found[CUT] == f"{100 - (len(found) - 1)} more headers, too long to be kept"


def test_tables_nested_without_end_are_cut() -> None:
    nested: dict[str, Any] = {}
    inner = nested
    for _ in range(5000):
        inner["in"] = inner = {}
    assert json.dumps(CUT) in headers_as_json(nested)


@given(st.dictionaries(st.text(), VALUES, max_size=8))
@settings(max_examples=60)
def test_answer_is_always_a_short_object_without_what_jsonb_refuses(headers: dict[str, Any]) -> None:
    text = headers_as_json(headers)
    assert isinstance(json.loads(text), dict)
    assert len(text) <= LONGEST
    assert "\\u0000" not in text.replace("\\\\", "")
