"""docs/contributing.md names files and what to edit in them. Each name must be there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "contributing.md"


def test_every_name_is_in_the_file_that_the_page_names() -> None:
    """`path` (`name`, …), with words between the names, or `name` of `path`."""
    missing, checked, page = [], 0, PAGE.read_text()
    in_brackets = re.findall(r"`([\w/]+\.py)`\s+\(([^)]*`\w+`[^)]*)\)", page)
    of_path = [(path, f"`{name}`") for name, path in re.findall(r"`(\w+)`\s+of\s+`([\w/]+\.py)`", page)]
    for path, names in (*in_brackets, *of_path):
        file = ROOT / path if (ROOT / path).exists() else ROOT / "dlq_handler" / path
        for name in re.findall(r"`(\w+)`", names):
            checked += 1
            if not re.search(
                rf"^(?:def|async def|class) {name}\b|^{name}\b.*=", file.read_text(), re.MULTILINE
            ):
                missing.append(f"{path}: {name}")
    assert checked > 20
    assert missing == []
