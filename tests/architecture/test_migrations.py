"""Migrations stand in one line and only expand: a replica of the version before continues to work."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = ROOT / "dlq_handler/database/migrations/versions"
OLD_PROGRAM = ROOT / "tests/integration/database/old_program"

# What breaks the statements of an older program. New tables may have any columns.
REFUSED = {
    "drops something": r"\bDROP\s+(TABLE|COLUMN|INDEX|CONSTRAINT|TYPE|SCHEMA|DEFAULT)\b",
    "renames something": r"\bRENAME\b|\bSET\s+SCHEMA\b",
    "changes a type": r"\bALTER\s+(COLUMN\s+)?\w+\s+(SET\s+DATA\s+)?TYPE\b",
    "makes a column NOT NULL": r"\bSET\s+NOT\s+NULL\b",
    "adds a column that an older program does not fill": (
        r"\bADD\s+(COLUMN\s+)?(?!CONSTRAINT)[^,;]*\bNOT\s+NULL\b(?![^,;]*\bDEFAULT\b)"
    ),
    "adds a check that an older program may violate": r"\bADD\s+(CONSTRAINT\s+\w+\s+)?(CHECK|UNIQUE|FOREIGN|EXCLUDE)\b",
    "builds an index in the transaction": r"\bCREATE\s+(UNIQUE\s+)?INDEX\s+(?!CONCURRENTLY)",
}


# Replaces a check of a list of values. NOT VALID: the rows on record passed the narrower check, and are not read again
# under the lock. That the new list has all values of the old one is a test of its own.
_WIDENED_CHECK = re.compile(
    r"\bALTER\s+TABLE\s+\w+\s+DROP\s+CONSTRAINT\s+(?P<name>\w+)\b"
    r"(?P<between>.*?)"
    r"\bADD\s+CONSTRAINT\s+(?P=name)\s+CHECK\s*\((?P<column>\w+)\s+IN\s*\((?P<values>[^)]*)\)\)\s*NOT\s+VALID",
    re.IGNORECASE | re.DOTALL,
)


def problems_of(source: str) -> list[str]:
    """An index on a table that the same migration creates may be built in the transaction."""
    source = _WIDENED_CHECK.sub(lambda found: found["between"], source)
    created = set(re.findall(r"\bCREATE\s+TABLE\s+(\w+)", source, re.IGNORECASE))
    without_tables = re.sub(
        r"\bCREATE\s+TABLE\s+\w+\s*\(.*?\n\s*\)", "", source, flags=re.IGNORECASE | re.DOTALL
    )
    for table in created:
        without_tables = re.sub(
            rf"\bCREATE\s+(UNIQUE\s+)?INDEX\s+\w+\s+ON\s+{table}\b", "", without_tables, flags=re.IGNORECASE
        )
    return [
        problem
        for problem, pattern in REFUSED.items()
        if re.search(pattern, without_tables.replace('"\n', " "), re.IGNORECASE)
    ]


def test_every_migration_follows_the_one_before() -> None:
    files = sorted(VERSIONS.glob("[0-9]*.py"))
    found = [
        re.findall(r'^(?:down_)?revision = (?:"(\d+)"|None)$', file.read_text(), re.MULTILINE)
        for file in files
    ]
    numbers = [file.name.partition("_")[0] for file in files]
    assert found == [[number, before] for number, before in zip(numbers, ["", *numbers], strict=False)]


def test_migrations_after_the_first_only_expand() -> None:
    later = [file for file in sorted(VERSIONS.glob("[0-9]*.py")) if not file.name.startswith("0001")]
    assert {file.name: problems_of(file.read_text()) for file in later} == {file.name: [] for file in later}


def test_a_check_that_is_replaced_keeps_the_values_of_the_older_program() -> None:
    values: dict[str, set[str]] = {}
    for file in sorted(VERSIONS.glob("[0-9]*.py")):
        source = file.read_text()
        for table in re.finditer(r"CREATE TABLE (\w+) \((.*?)\n    \)", source, re.DOTALL):
            for check in re.finditer(r"CHECK \((\w+) IN \(([^)]*)\)\)", table[2]):
                values[f"{table[1]}_{check[1]}_check"] = set(re.findall(r"'(\w+)'", check[2]))
        for found in _WIDENED_CHECK.finditer(source):
            widened = set(re.findall(r"'(\w+)'", found["values"]))
            assert values[found["name"]] < widened, f"{file.name} removes values of {found['name']}"
            values[found["name"]] = widened
    assert "archived" in values["letter_outcome_check"]


_REPLACED = (
    "ALTER TABLE letter DROP CONSTRAINT c; ALTER TABLE letter ADD CONSTRAINT {} CHECK (note IN ('a')){}"
)


@pytest.mark.parametrize(
    ("statement", "is_refused"),
    [
        (_REPLACED.format("c", " NOT VALID"), False),
        (_REPLACED.format("c", ""), True),
        (_REPLACED.format("d", " NOT VALID"), True),
        ("ALTER TABLE letter ADD COLUMN note text", False),
        ("ALTER TABLE letter ADD COLUMN note text NOT NULL DEFAULT ''", False),
        ("ALTER TABLE letter ADD COLUMN note text NOT NULL", True),
        ("ALTER TABLE letter DROP COLUMN note", True),
        ("ALTER TABLE letter ALTER COLUMN note TYPE bigint", True),
        ("ALTER TABLE letter ALTER note SET DATA TYPE bigint", True),
        ("ALTER TABLE letter RENAME COLUMN note TO notes", True),
        ("ALTER TABLE letter ALTER COLUMN note SET NOT NULL", True),
        ("ALTER TABLE letter ADD CONSTRAINT c CHECK (note <> '')", True),
        ("DROP TABLE letter", True),
        ("CREATE INDEX i ON letter (note)", True),
        ("CREATE INDEX CONCURRENTLY i ON own.letter (note)", False),
        ("CREATE TABLE note (\n    id bigint NOT NULL\n)\nCREATE INDEX i ON note (id)", False),
        ("UPDATE compatibility SET least_program_version = '0.2.0'", False),
    ],
)
def test_what_a_migration_may_do(statement: str, is_refused: bool) -> None:
    assert bool(problems_of(statement)) is is_refused


def test_a_second_migration_names_the_program_before_it() -> None:
    has_second = any(VERSIONS.glob("0002_*.py"))
    named = [line for line in OLD_PROGRAM.read_text().splitlines() if line and not line.startswith("#")]
    assert not has_second or re.fullmatch(r"[0-9a-f]{40}", "".join(named)), f"{OLD_PROGRAM} names no commit"
