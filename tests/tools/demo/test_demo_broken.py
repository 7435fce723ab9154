"""`./run demo` fails when the sidecar breaks a promise, names it, and keeps the log to read."""

import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import sabotage
from tests.support.demo import ROOT, demo, left_running


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("point", "seen"),
    [
        (sabotage.publishes_nothing, "not published: "),
        (sabotage.publishes_twice, "published more than once: "),
    ],
    ids=["no-publish", "double-publish-with-the-same-id"],
)
async def test_demo_fails_when_the_sidecar_breaks_a_promise(
    tmp_path: Path, point: Callable[[int], None], seen: str
) -> None:
    command = shlex.join(
        [sys.executable, str(ROOT / "tests/support/sabotage.py"), point.__name__, "1", "run"]
    )
    process = await demo(tmp_path, "--patience", "40", "--sidecar", command)
    out, _ = await process.communicate()
    output = out.decode()
    assert process.returncode == 1, output
    assert seen in output, output
    promise = "the completion event of each end was published, exactly once"
    log = re.search(rf"BROKEN: {promise}: .*; read (\S+sidecar\.log)", output)
    assert log, output
    assert "intake.opened" in Path(log[1]).read_text()  # noqa: ASYNC240 - nothing else runs in this loop now
    assert left_running(tmp_path) == []
