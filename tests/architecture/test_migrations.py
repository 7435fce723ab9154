"""Migrations stand in one line: two with the same predecessor, or the same number, would stop every start."""

import re
from pathlib import Path

VERSIONS = Path(__file__).resolve().parents[2] / "dlq_handler/database/migrations/versions"


def test_every_migration_follows_the_one_before() -> None:
    files = sorted(VERSIONS.glob("[0-9]*.py"))
    found = [
        re.findall(r'^(?:down_)?revision = (?:"(\d+)"|None)$', file.read_text(), re.MULTILINE)
        for file in files
    ]
    numbers = [file.name.partition("_")[0] for file in files]
    assert found == [[number, before] for number, before in zip(numbers, ["", *numbers], strict=False)]
