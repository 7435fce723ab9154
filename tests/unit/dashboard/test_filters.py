"""The letters' filters: all of them in the address, each to be taken off, and the same as a command."""

import shlex
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl, urlsplit

from hypothesis import given
from hypothesis import strategies as st

from dlq_handler.dashboard import filters
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.group import Category

NOW = datetime(2026, 11, 16, 2, 58, 14, tzinfo=UTC)

ALL = {
    "group": "7f3a0b1c2d",
    "category": "not_taken",
    "reason": "expired",
    "outcome": "failed",
    "worker": "7",
    "action": "core.echo",
    "since": "2026-11-16T02:26",
    "until": "1h",
    "search": "4711",
}


def test_every_filter_is_read() -> None:
    asked = filters.read(ALL, now=NOW)
    assert asked.problems == []
    wanted = asked.wanted
    assert (wanted.category, wanted.outcome, wanted.worker_id) == (Category.NOT_TAKEN, Outcome.FAILED, 7)
    assert wanted.since == datetime(2026, 11, 16, 2, 26, tzinfo=UTC)
    assert wanted.until == NOW - timedelta(hours=1)
    assert (wanted.group, wanted.reason, wanted.action, wanted.search) == (
        "7f3a0b1c2d",
        "expired",
        "core.echo",
        "4711",
    )


def test_a_chip_takes_off_its_own_filter_and_no_other() -> None:
    asked = filters.read(ALL, now=NOW)
    assert len(asked.chips) == len(ALL)
    for chip, name in zip(asked.chips, asked.given, strict=True):
        left = dict(parse_qsl(urlsplit(chip.href).query))
        assert left == {key: value for key, value in ALL.items() if key != name}


def test_the_command_has_the_same_filters() -> None:
    words = shlex.split(filters.read(ALL, now=NOW).command)
    assert words[:3] == ["dlq-handler", "letters", "list"]
    assert dict(zip(words[3::2], words[4::2], strict=True)) == {
        f"--{name}": value for name, value in ALL.items()
    }


def test_an_empty_field_is_no_filter() -> None:
    asked = filters.read(dict.fromkeys(ALL, "  "), now=NOW)
    assert asked.given == {}
    assert asked.href() == "/letters"


def test_what_cannot_be_understood_is_said_and_not_guessed() -> None:
    asked = filters.read(
        {"category": "x", "outcome": "y", "worker": "7a", "since": "noon", "until": "9"}, now=NOW
    )
    assert len(asked.problems) == 5


def test_a_name_that_is_no_filter_is_said_and_not_passed_over() -> None:
    [problem] = filters.read({"outcme": "failed", "reason": "expired"}, now=NOW).problems
    assert problem.startswith("'outcme' is no filter")
    own = {"before": "1", "after": "1", "seen": "1", "fragment": "new"}
    assert filters.read(own, now=NOW).problems == []


def test_a_moment_ends_the_window_unless_that_ended_before() -> None:
    asked = filters.read({"at": "2026-11-16T02:26:00Z"}, now=NOW)
    night = datetime(2026, 11, 16, 2, 26, tzinfo=UTC)
    assert (asked.at, asked.wanted.until) == (night, night)
    assert [chip.text for chip in asked.chips] == ["as of: 2026-11-16T02:26:00Z"]
    later = filters.read({"at": "2026-11-16T02:26:00Z", "until": "2026-11-16T02:50:00Z"}, now=NOW)
    assert later.wanted.until == night
    assert filters.read({"at": "2030-01-01T00:00:00Z"}, now=NOW).at == NOW
    assert len(filters.read({"at": "noon"}, now=NOW).problems) == 1


def test_times_that_count_back_do_so_from_the_moment_that_is_shown() -> None:
    """A link of the night, opened in the morning."""
    asked = filters.read({"at": "2026-11-15T18:34:30Z", "since": "5m", "until": "1m"}, now=NOW)
    assert asked.wanted.since == datetime(2026, 11, 15, 18, 29, 30, tzinfo=UTC)
    assert asked.wanted.until == datetime(2026, 11, 15, 18, 33, 30, tzinfo=UTC)


def test_every_link_of_a_moment_stays_there_and_its_command_needs_none() -> None:
    asked = filters.read({"at": "2026-11-15T18:34:30Z", "since": "5m", "reason": "expired"}, now=NOW)
    given_ = {"at": "2026-11-15T18:34:30Z", "since": "5m", "reason": "expired"}
    assert dict(parse_qsl(urlsplit(asked.href(before=12)).query)) == {**given_, "before": "12"}
    words = shlex.split(asked.command)
    assert dict(zip(words[3::2], words[4::2], strict=True)) == {
        "--since": "2026-11-15T18:29:30Z",
        "--until": "2026-11-15T18:34:30Z",
        "--reason": "expired",
    }


def test_the_next_page_keeps_the_filters() -> None:
    href = filters.read({"reason": "a&b"}, now=NOW).href(before=12)
    assert dict(parse_qsl(urlsplit(href).query)) == {"reason": "a&b", "before": "12"}


@given(st.dictionaries(st.sampled_from((*filters.NAMES, filters.AT)), st.text(max_size=40)))
def test_whatever_is_written_into_the_address_never_raises(given_: dict[str, str]) -> None:
    asked = filters.read(given_, now=NOW)
    assert asked.command
    assert asked.href()
