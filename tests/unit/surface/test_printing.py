"""What commands print can be read by people and by programs, and cannot drive a terminal."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from pathlib import Path
from uuid import UUID

import pytest

from dlq_handler.settings import SecretUrl
from dlq_handler.surface.cli.printing import print_json, print_table, printable, shown


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    at: datetime
    items: tuple[object, ...]


def test_json_has_arrays_utc_times_and_no_password(capsys: pytest.CaptureFixture[str]) -> None:
    noon = datetime(2026, 1, 2, 13, 0, tzinfo=timezone(timedelta(hours=1)))

    print_json(
        [
            Thing(
                at=noon,
                items=(Colour.RED, UUID(int=1), Path("a"), SecretUrl("amqp://u:p@h"), None, "é\ud800"),
            )
        ]
    )

    assert json.loads(capsys.readouterr().out) == [
        {
            "at": "2026-01-02T12:00:00Z",
            "items": ["red", "00000000-0000-0000-0000-000000000001", "a", "amqp://u:***@h", None, "é\ud800"],
        }
    ]


def test_a_list_without_items_is_an_empty_array(capsys: pytest.CaptureFixture[str]) -> None:
    print_json(())

    assert capsys.readouterr().out == "[]\n"


def test_a_table_in_a_pipe_is_neither_cut_nor_coloured(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("A", "LONGER"), [("x" * 200, 1), ("[bold]y", datetime(2026, 1, 1, tzinfo=UTC))])

    first, second, third = capsys.readouterr().out.splitlines()
    assert first == "A".ljust(202) + "LONGER"
    assert second == "x" * 200 + "  1"
    assert third == "[bold]y".ljust(202) + "2026-01-01T00:00:00Z"


def test_a_table_without_rows_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("A",), [], empty="no letters")

    assert capsys.readouterr().out == "no letters\n"


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (None, "-"),
        (True, "true"),
        (2.0, "2"),
        (0.5, "0.5"),
        (7, "7"),
        (["a", None], "a, -"),
        ({"a": 1}, '{"a": 1}'),
    ],
)
def test_a_cell_reads_well(value: object, cell: str) -> None:
    assert shown(value) == cell


def test_control_characters_are_shown_and_not_sent() -> None:
    assert printable("a\x1b[31m\n\x07é\ud800") == "a\\x1b[31m\\n\\x07é\\ud800"
