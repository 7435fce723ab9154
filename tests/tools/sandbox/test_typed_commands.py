"""`./run` accepts every command of the pages about the sandbox, with its parts and options."""

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from dlq_handler import logs
from dlq_handler.main import app
from sandbox.stage.__main__ import CLIENTS, parser
from sandbox.stage.parts import ATTUNE

ROOT = Path(__file__).parents[3]


def typed(page: str) -> list[list[str]]:
    """Each `./run …` of the page's sh blocks, without what only a shell sees."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    text = "\n".join(blocks).replace("worker-$worker", "worker-node")
    return [
        shlex.split(found, comments=True)
        for found in re.findall(r"\./run ((?:\"[^\"]*\"|[^;&|\n\"])*)", text)
    ]


@pytest.mark.parametrize("page", ["docs/tutorial.md", "docs/how-to/sandbox.md"])
def test_every_command_of_the_page_is_understood(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # For the whole process: tests that come later would wait for log events in vain.
    monkeypatch.setattr(logs, "configure_logging", lambda **_: None)
    commands = typed(page)
    assert {"up", "break", "repair", "psql", "rabbitmq", "dlq-handler", "down"} <= {
        line[0] for line in commands
    }
    for command, *arguments in commands:
        if command == "dlq-handler":
            # Resolved and parsed, not done: --help ends it before.
            assert get_command(app).main([*arguments, "--help"], standalone_mode=False) == 0, arguments
        elif command not in {*CLIENTS, "demo"}:
            parser().parse_args([command, *arguments])


def test_page_says_to_restart_each_of_attunes_services_after_a_broker_loss() -> None:
    """They never reconnect (NO_RECONNECT), and `repair broker` does not restart them."""
    page = (ROOT / "docs/how-to/sandbox.md").read_text()
    [row] = [line for line in page.splitlines() if line.startswith("| `broker`")]
    assert re.findall(r"`\./run repair ([\w-]+)`", row) == ["broker", *ATTUNE]
    assert "database" not in row
