"""What `top` draws: the ill first, what is unknown as unknown, and bars that do not hide a single letter."""

from datetime import timedelta

import pytest
from rich.console import Console

from dlq_handler.domain.diagnose import diagnose
from dlq_handler.domain.view import Unknown
from dlq_handler.surface.cli.letters_groups import GroupsSeen
from dlq_handler.surface.cli.top_screen import Sight, bars, not_ok_first, screen
from tests.support.views import NOW, a_view, a_worker, ago

NO_GROUPS = GroupsSeen(
    counts=(),
    in_all=0,
    lanes=(),
    names={},
    since=NOW - timedelta(hours=1),
    until=NOW,
    now=NOW,
    ttl_seconds=300.0,
)


def drawn(sight: Sight | None, *, now: float = 0.0, width: int = 160) -> str:
    console = Console(width=width, record=True, file=None, quiet=True)
    with console.capture() as capture:
        console.quiet = False
        console.print(screen(sight, environment="production", now=now, width=width))
    return capture.get()


@pytest.mark.parametrize(
    ("counts", "drawing"),
    [
        ([], ""),
        ([0, 0], "  "),
        ([8, 4, 1, 0], "█▄▁ "),
        ([1000, 1], "█▁"),
        ([1, 1], "██"),
    ],
)
def test_the_highest_bar_is_full_and_one_letter_is_not_none(counts: list[int], drawing: str) -> None:
    assert bars(counts) == drawing


def test_who_is_missed_comes_first_and_of_many_that_are_fine_only_the_count_is_told() -> None:
    fine = [a_worker(number=number, name=f"w{number}") for number in range(10, 30)]
    gone = a_worker(number=7, silent_seconds=7200, queue=None, ended_last_hour=3, scheduled=1)
    retired = a_worker(number=6, silent_seconds=7200, queue=None, status="inactive", updated=ago(7195))
    view = a_view(workers=(retired, *fine, gone))
    told = drawn(Sight(view=view, diagnoses=diagnose(view), groups=NO_GROUPS))

    ordered = not_ok_first((retired, *fine, gone))
    assert (ordered[0], ordered[-1]) == (gone, retired), (
        "one that was stopped with nothing to do is not missed"
    )
    assert "+13 available" in told
    assert "+1 unavailable" in told
    assert "2026-03-01T01:00:00Z (2 h ago)" in told
    assert told.index("✕ workers: worker gone") < told.index("✓ ok:")


def test_a_narrow_window_goes_without_columns_before_it_cuts_a_name() -> None:
    name = "worker-python-7d9f5c6b8-x2x4q"
    view = a_view(workers=(a_worker(number=7, name=name, silent_seconds=7200, scheduled=1),))
    sight = Sight(view=view, diagnoses=(), groups=NO_GROUPS)
    narrow = drawn(sight, width=80)

    [row] = [line for line in narrow.splitlines() if line.startswith("7 ")]
    assert row.split()[:3] == ["7", name, "unavailable"]
    assert "2026-03-01T01:00:00Z (2 h ago)" in row
    assert "not shown for want of width: CONSUMERS, READY, UNACKED" in narrow
    assert "not shown for want of width: SCHEDULED, RUNNING\n" in drawn(sight, width=120)
    assert "not shown" not in drawn(sight, width=160)
    folded = drawn(sight, width=40)
    assert "…" not in folded
    assert max(map(len, folded.splitlines())) <= 40


def test_what_is_not_known_is_said_and_a_name_cannot_drive_the_terminal() -> None:
    view = a_view(workers=Unknown("the database sleeps\x1b[2J"))
    told = drawn(Sight(view=view, diagnoses=diagnose(view), groups=Unknown("no answer")), now=30)

    assert "? workers: the database sleeps\\x1b[2J" in told
    assert "? letters: no answer" in told
    assert "2026-03-01T03:00:00Z (30 s ago)" in told
    assert "dlq-handler production" in told


def test_before_the_first_look_it_says_that_it_asks() -> None:
    assert drawn(None).startswith("dlq-handler production: asking the database and the broker …")
