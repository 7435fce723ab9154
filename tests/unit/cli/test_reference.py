"""The page of commands says what the commands say, and every exit code is on it."""

import re
from pathlib import Path

from dlq_handler.dashboard import filters
from scripts.cli_reference import PAGE, cli_page

ROOT = Path(__file__).parents[3]


def test_the_page_is_up_to_date() -> None:
    assert (ROOT / PAGE).read_text(encoding="utf-8") == cli_page(), (
        "docs/reference/cli.md is out of date: ./run references"
    )


def test_every_command_says_what_it_does() -> None:
    for section in cli_page().split("\n## `")[1:]:
        name, _, text = section.partition("`\n\n")
        assert re.match(r"[A-Z]", text), f"{name} says nothing"


def test_every_exit_code_of_the_code_is_in_the_table() -> None:
    table = cli_page().partition("## Exit codes")[2].partition("\n## ")[0]
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
    sources = [path.read_text() for path in (ROOT / "dlq_handler").rglob("*.py")]
    written = {
        int(code)
        for source in sources
        for code in re.findall(r"\b(?:exit_code|EXIT_[A-Z_]+) = (\d+)|typer\.Exit\((\d+)\)", source)
        for code in code
        if code
    }

    assert written - listed == set()
    assert {0, 1, 2, 69, 78} <= written


def test_what_the_dashboard_filters_by_the_command_does_too() -> None:
    """The page of letters shows the same view as a command at its foot."""
    for command in ("list", "export"):
        section = cli_page().partition(f"## `dlq-handler letters {command}`")[2].partition("\n## ")[0]
        options = set(re.findall(r"^\| `--([a-z]+)", section, re.MULTILINE))
        assert set(filters.NAMES) - options == set(), command
