"""What commands print can be read by people and by programs, and cannot drive a terminal."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from uuid import UUID

import pytest

from dlq_handler.cli.printing import fitting, print_json, print_table, printable, shown, utc, with_age
from dlq_handler.options import SecretUrl

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    at: datetime
    items: tuple[object, ...]


def test_json_has_arrays_utc_times_and_no_password(capsys: pytest.CaptureFixture[str]) -> None:
    print_json(
        [
            Thing(
                at=NOON,
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


def test_a_table_in_a_pipe_is_whole_lines_with_tabs_between_the_fields(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(("A", "LONGER"), [("x" * 200, 1), ("[bold]y\t\n", NOON)], now=NOON)

    assert capsys.readouterr().out.splitlines() == [
        "A\tLONGER",
        "x" * 200 + "\t1",
        "[bold]y\\t\\n\t2026-01-02T12:00:00Z",
    ]


def test_a_table_without_rows_is_its_header_alone_and_says_so_beside_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(("A",), [], empty="no letters")

    assert capsys.readouterr() == ("A\n", "no letters\n")


def test_a_terminal_shows_how_long_ago_each_time_was(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)

    print_table(("RECEIVED", "QUEUE"), [(NOON - timedelta(minutes=4), "q")], now=NOON)
    print_table(("A",), [], empty="no letters")

    header, row, empty = capsys.readouterr().out.splitlines()
    assert header.index("RECEIVED") < header.index("QUEUE")
    assert row.rstrip() == "2026-01-02T11:56:00Z (4 min ago)  q"
    assert empty == "no letters"


@pytest.mark.parametrize(
    ("seconds_before", "words"),
    [(240, "4 min ago"), (0, "0 s ago"), (-3, "0 s ago"), (-7200, "in 2 h"), (3 * 86_400, "3 d ago")],
)
def test_a_time_says_its_age_and_a_clock_that_is_a_little_ahead_does_not_make_it_the_future(
    seconds_before: float, words: str
) -> None:
    when = NOON - timedelta(seconds=seconds_before)

    assert with_age(when, NOON) == f"{utc(when)} ({words})"


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


def test_a_narrow_terminal_goes_without_spare_columns_and_keeps_the_others_whole() -> None:
    columns = ("ID", "NAME", "ROLE", "QUEUE")
    cells = [["1", "worker-python", "action", "worker.1.executions"]]
    assert fitting(columns, cells, optional=("ROLE", "QUEUE"), width=80) == [0, 1, 2, 3]
    assert fitting(columns, cells, optional=("ROLE", "QUEUE"), width=44) == [0, 1, 3]
    assert fitting(columns, cells, optional=("ROLE", "QUEUE"), width=20) == [0, 1]
    assert fitting(columns, cells, optional=(), width=20) == [0, 1, 2, 3]
