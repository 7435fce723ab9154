"""Log events are public: each is a literal `noun.past_tense` and a row of docs/reference/log-events.md."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "dlq_handler"
PAGE = ROOT / "docs" / "reference" / "log-events.md"
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
LOGGER = re.compile(r"(.*\.)?_?log(\.bind\(.*\))?")
EVENT = re.compile(r"[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*")

Call = tuple[str, str, str | None]
"""Where it stands, its level, and its event: None when that is not a literal."""


def calls_in(source: str, where: str) -> Iterator[Call]:
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in LEVELS
            and LOGGER.fullmatch(ast.unparse(node.func.value))
        ):
            first = node.args[0] if node.args else None
            literal = (
                first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None
            )
            level = "error" if node.func.attr == "exception" else node.func.attr
            yield f"{where}:{node.lineno}", level, literal


def calls_in_code() -> list[Call]:
    files = PACKAGE.rglob("*.py")
    return [
        call
        for path in files
        for call in calls_in(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT)))
    ]


def levels_on_page() -> dict[str, set[str]]:
    rows = re.findall(r"^\| `([^`]+)` \| ([a-z, ]+) \|", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(rows) == len(dict(rows)), "an event is listed twice"
    return {event: set(levels.split(", ")) for event, levels in rows}


def test_every_event_is_a_literal_noun_and_verb() -> None:
    odd = [
        (where, event) for where, _, event in calls_in_code() if event is None or not EVENT.fullmatch(event)
    ]

    assert odd == [], "log events are literals of the form noun.past_tense"


def test_every_event_in_the_code_is_on_the_page_with_its_level() -> None:
    page = levels_on_page()
    missing = sorted(
        {
            f"{event} ({level}) at {where}"
            for where, level, event in calls_in_code()
            if level not in page.get(event or "", ())
        }
    )

    assert missing == [], f"add to {PAGE.relative_to(ROOT)}"


def test_every_event_on_the_page_is_in_the_code() -> None:
    # `library.reported` is written by logs.py on behalf of libraries, by no call of its own.
    in_code = {(event, level) for _, level, event in calls_in_code()}
    gone = sorted(
        f"{event} ({level})"
        for event, levels in levels_on_page().items()
        for level in levels
        if (event, level) not in in_code and event != "library.reported"
    )

    assert gone == [], f"remove from {PAGE.relative_to(ROOT)}"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('log.info("a.done", x=1)', [("f:1", "info", "a.done")]),
        ('self._log.exception("a.failed")', [("f:1", "error", "a.failed")]),
        ('log.bind(a=1).info("a.done")', [("f:1", "info", "a.done")]),
        ('log.warning(f"a.{x}")', [("f:1", "warning", None)]),
        ('catalog.info("x")', []),
        ('print("x")', []),
    ],
)
def test_calls_are_recognised(source: str, found: list[Call]) -> None:
    assert list(calls_in(source, "f")) == found
