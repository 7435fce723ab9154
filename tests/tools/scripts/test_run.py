"""`./run` lists its commands without setting anything up."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
COMMANDS = {
    name
    for labels in re.findall(r"^    ([a-z][a-z| -]*)\)$", (ROOT / "run").read_text(), re.MULTILINE)
    for name in labels.split(" | ")
    if not name.startswith("-")
}


def run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Outside of the clone, where nothing could be set up."""
    (folder / "run").write_text((ROOT / "run").read_text())
    return subprocess.run(
        ["sh", folder / "run", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("arguments", [(), ("help",), ("--help",)])
def test_alone_it_lists_its_commands(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    listed = run(tmp_path, *arguments)
    assert listed.returncode == 0
    assert {"test", "demo", "up", "break", "down"} <= COMMANDS
    missing = [name for name in COMMANDS if not re.search(rf"^ .*\b{name}\b", listed.stdout, re.MULTILINE)]
    assert missing == []


def test_unknown_command_is_refused_with_the_list(tmp_path: Path) -> None:
    refused = run(tmp_path, "dmeo")
    assert refused.returncode == 64
    assert "no command 'dmeo'" in refused.stderr
    assert "demo [ARGS]" in refused.stderr
