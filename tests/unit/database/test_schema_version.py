"""Which tables a program can use: its own, newer ones that allow it, and no others."""

import pytest

from dlq_handler.database.migrate import SchemaVersion


def found(version: str | None, least: str | None = "0.1.0", program: str = "0.2.0") -> SchemaVersion:
    return SchemaVersion(
        version=version, least_program_version=least, known={"0001", "0002"}, program_version=program
    )


@pytest.mark.parametrize(
    ("schema", "is_usable", "needs_upgrade", "has_note"),
    [
        (found("0002"), True, False, False),
        (found(None, None), False, True, False),
        (found("0001"), False, True, False),
        (found("0003"), True, False, True),
        (found("0003", "0.2.0"), True, False, True),
        (found("0003", "0.10.0"), False, False, False),
        (found("0002", "0.2.0", program="0.10.0rc1"), True, False, False),
        # Of before the squash into 0001: neither newer, nor to be upgraded.
        (found("0021", None), False, False, False),
        (found("0001", None), False, False, False),
    ],
)
def test_usable_tables(schema: SchemaVersion, is_usable: bool, needs_upgrade: bool, has_note: bool) -> None:
    assert (schema.problem is None, schema.needs_upgrade, schema.note is not None) == (
        is_usable,
        needs_upgrade,
        has_note,
    )
