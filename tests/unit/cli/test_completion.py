"""What a shell offers at the Tab key, asked as bash asks it; once by a real bash with the script it was given."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.group import Category
from dlq_handler.dead_letters.letter import DEATH_REASONS
from dlq_handler.main import app
from dlq_handler.operations.operation import Action


def offered(typed: str) -> set[str]:
    """For the last word of what was typed so far, which may be empty."""
    asked = {
        "_DLQ_HANDLER_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(typed.count(" ")),
    }
    answer = CliRunner().invoke(app, prog_name="dlq-handler", env=asked)
    assert answer.exit_code == 0, answer.output
    return set(answer.stdout.split())


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("dlq-handler letters ", {"list", "show", "groups", "export", "reprocess"}),
        ("dlq-handler brake re", {"release"}),
        ("dlq-handler letters list --o", {"--outcome", "--output"}),
        ("dlq-handler letters list --outcome ", set(Outcome)),
        ("dlq-handler letters export --category q", {Category.QUEUE_FULL.value}),
        ("dlq-handler letters list --reason ", {*DEATH_REASONS, "none"}),
        ("dlq-handler letters export --reason re", {"rejected", "rescued"}),
        ("dlq-handler status --output j", {"json"}),
        (
            "dlq-handler audit list --action ",
            set(Action),
        ),
    ],
)
def test_commands_options_and_known_values_are_offered(typed: str, expected: set[str]) -> None:
    assert offered(typed) == expected


def test_every_group_of_commands_is_offered() -> None:
    assert {"status", "letters", "workers", "audit", "brake", "canary"} <= offered("dlq-handler ")


# What bash does at the Tab key: it calls the function that was registered, which fills COMPREPLY.
TAB = """
eval "$(dlq-handler --show-completion)"
COMP_WORDS=(dlq-handler letters list --outcome fa) COMP_CWORD=4
[[ $(complete -p dlq-handler) =~ -F\\ ([^ ]+) ]] && "${BASH_REMATCH[1]}" dlq-handler
echo "${COMPREPLY[*]}"
"""


def test_a_real_bash_completes_with_the_script_that_it_is_shown() -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    answer = subprocess.run(
        ["bash", "-c", TAB],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PATH": path},
    )

    assert (answer.stdout, answer.stderr) == ("failed\n", "")
