"""The pure parts of the demo: reading reports, printing and drawing them, deciding whether all promises were kept."""

import io
import json
import re
from typing import Any

import pytest
from rich.console import Console

from sandbox.auditor.ledger import Audit, Change, CompletionEvent, Violation
from sandbox.auditor.reports import Reporter
from sandbox.demo.live_view import draw
from sandbox.demo.observed import ObservedState, numbers
from sandbox.demo.picture import Condition, Picture
from sandbox.demo.promises import promises
from sandbox.demo.view import View, open_view
from sandbox.stage.parts import PARTS

COLOR = re.compile(r"\x1b\[[\d;]*(?:3[0-7]|9[0-7])m")

KEPT: dict[str, Any] = {
    "dispatched": 4,
    "open": [],
    "ends": 4,
    "silent": [],
    "doubled": [],
    "repeats": 0,
    "terminal": 4,
    "changed": [],
    "stock_letters": 0,
    "messages_waiting": 0,
    "in_line": 0,
    "retired": 2,
    "retired_open": [],
    "undeleted": [],
}


def reports() -> list[dict[str, Any]]:
    """As the auditor writes them."""
    out = io.StringIO()
    reporter = Reporter(out)
    reporter.picture(
        line=[(2, "queued")],
        workers={7: "worker-shell"},
        cordoned=["worker-shell"],
        queues={"worker.7.executions": 3},
    )
    life = [("scheduled", 7, None), ("failed", None, "letter")]
    reporter.changes(
        Change(
            number=number,
            execution_id=execution,
            action_ref="core.echo",
            status=status,
            worker_id=w,
            ended_by=by,
        )
        for execution in (1, 2, 3)
        for number, (status, w, by) in enumerate(life)
    )
    completion = CompletionEvent(execution_id=1, message_id="a", status="failed", source="dlq-handler")
    reporter.completions([(completion, False), (completion, True)])
    reporter.violation(Violation(promise="announced once", execution_ids=(1,)))
    reporter.away("broker", OSError("gone"))
    return [json.loads(line) for line in out.getvalue().splitlines()]


def observed_state() -> ObservedState:
    observed = ObservedState()
    for report in reports():
        observed.take(report)
    return observed


def test_state_is_made_of_reports() -> None:
    observed = observed_state()
    assert observed.over([1, 2, 3]) == [1, 2, 3] == observed.ended_by([1, 2, 3], "letter")
    assert observed.on_worker([1, 9], "worker-shell") == [1]
    assert observed.are_settled([1])
    assert not observed.are_settled([1, 2])
    assert observed.rescued() == 3
    assert observed.cordoned == {"worker-shell"}
    assert observed.violations == ["announced once: executions 1"]


def test_a_lost_request_that_is_repeated_counts_as_rescued() -> None:
    observed = ObservedState(lost={4})

    def becomes(status: str) -> None:
        change = {"execution_id": 4, "status": status, "worker_id": None, "ended_by": None}
        observed.take({"kind": "changes", "changes": [change]})

    for status in ("requested", "scheduling", "requested"):
        becomes(status)
    assert (observed.executions[4].given_back, observed.rescued()) == (1, 0)
    becomes("scheduled")
    assert observed.rescued() == 1


def test_runs_of_numbers_are_folded() -> None:
    assert numbers([5, 1, 2, 3]) == "1-3, 5"


@pytest.mark.parametrize(
    ("fault", "promise"),
    [
        ({"open": [3]}, "every execution that was dispatched came to an end"),
        ({"silent": [3]}, "the completion event of each end was published, exactly once"),
        ({"doubled": [3]}, "the completion event of each end was published, exactly once"),
        ({"changed": [3]}, "no execution that was over was changed"),
        ({"stock_letters": 1}, "stock Attune: letters that reach its dead-letter queue"),
        ({"retired_open": [3]}, "each execution dispatched to a retired worker came to an end"),
        ({"undeleted": ["worker.3.packs"]}, "queues of a retired worker that were not deleted"),
        ({"in_line": 1}, "no execution is left in the line of core.slow"),
        ({"messages_waiting": 1}, "no message is left in any queue"),
    ],
)
def test_each_fault_breaks_its_promise(fault: dict[str, Any], promise: str) -> None:
    assert [kept.promise for kept in promises(KEPT | fault) if not kept.held] == [promise]


def test_the_audit_has_what_the_table_asks_for() -> None:
    out = io.StringIO()
    empty = Audit(
        dispatched=0,
        open=(),
        ends=0,
        silent=(),
        doubled=(),
        repeats=0,
        terminal=0,
        changed=(),
        retired=0,
        retired_open=(),
    )
    Reporter(out).audit(empty, stock_letters=0, messages_waiting=0, in_line=0, undeleted=[])
    assert all(promise.held for promise in promises(json.loads(out.getvalue())))


@pytest.mark.parametrize("width", [80, 120])
def test_the_picture_leaves_room_for_events(width: int) -> None:
    picture = Picture(
        observed=observed_state(),
        act="Act 4 of 6",
        look_at="Look at: " + "x" * 200,
        conditions=dict.fromkeys(PARTS, Condition.STARTING),
    )
    out = io.StringIO()
    Console(file=out, width=width, height=24).print(draw(picture, 61))
    lines = out.getvalue().splitlines()
    assert len(lines) <= 16
    assert max(map(len, lines)) <= width
    assert "1:01" in lines[-1]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch, **variables: str) -> str:
    """What a short show writes to one of 80 x 24."""
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24", **variables}.items():
        monkeypatch.setenv(name, value)
    out = Terminal()
    view = open_view(out, began=0)
    view.open(
        Picture(observed=observed_state(), act="Act 4", conditions=dict.fromkeys(PARTS, Condition.KILLED))
    )
    view.line("something happened")
    view.close()
    return out.getvalue()


@pytest.mark.parametrize(("variables", "is_colored"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_a_terminal_gets_a_picture_with_colors_unless_they_are_off(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], is_colored: bool
) -> None:
    shown = shown_on_a_terminal(monkeypatch, **variables)
    assert "line of core.slow" in shown
    assert (COLOR.search(shown) is not None) is is_colored


def test_a_dumb_terminal_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = shown_on_a_terminal(monkeypatch, TERM="dumb")
    assert "something happened" in shown
    assert "\x1b" not in shown


def test_a_closed_output_is_reported_once() -> None:
    class Left(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    noticed: list[bool] = []
    view = View(Left(), began=0)
    view.on_closed = lambda: noticed.append(True)
    view.line("a")
    view.line("b")
    assert noticed == [True]
