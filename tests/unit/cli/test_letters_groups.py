"""`letters groups` on a terminal: a narrow one goes without a column before it folds a time."""

import pytest

from dlq_handler.cli.letters_groups import GroupsSeen, print_groups
from dlq_handler.dead_letters.group import Category, Group, GroupCount
from tests.support.views import NOW, ago

GROUP = Group(
    id="7f3a0c91de",
    category=Category.NOT_TAKEN,
    reason="expired",
    queue="worker.7.executions",
    detail=None,
    worker_id=7,
    first_at=ago(600),
    last_at=ago(26),
    letters=611,
    failed=611,
    actions=("core.http", "core.echo"),
    more_actions=0,
)
SEEN = GroupsSeen(
    counts=[GroupCount(group=GROUP, letters=611, failed=611, last_at=ago(26))],
    in_all=1,
    timelines=(),
    names={7: "worker-python"},
    since=ago(3600),
    until=NOW,
    now=NOW,
    ttl_seconds=300.0,
)


@pytest.mark.parametrize(
    ("width", "left_out"), [(180, None), (120, "QUEUE, ACTIONS"), (100, "REASON, QUEUE, ACTIONS")]
)
def test_each_group_is_one_line_in_any_usual_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int, left_out: str | None
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))

    print_groups(SEEN)

    out, err = capsys.readouterr()
    _, row = out.splitlines()
    assert row.rstrip().endswith("2026-03-01T02:59:34Z (26 s ago)")
    assert err == ("" if left_out is None else f"columns not shown, the terminal is too narrow: {left_out}\n")
