"""Statements name their columns: with `*`, an older program would receive columns that a later migration adds."""

import re

from tests.support.host_sql import PACKAGE, strings_of

# `given` is the arrays of the statement itself, so its columns are written there.
_ALL_COLUMNS = re.compile(
    r"\b(?:SELECT|RETURNING)\s+(?:DISTINCT\s+)?\*(?!\s+FROM\s+unnest\()|\b(?!given\b)[a-z_]+\.\*"
)


def test_no_statement_reads_all_columns_of_a_table() -> None:
    found = {
        f"{path.relative_to(PACKAGE)}: {match[0]}"
        for path in sorted(PACKAGE.rglob("*_sql.py"))
        for text in strings_of(path)
        if (match := _ALL_COLUMNS.search(text))
    }
    assert found == set()
    assert _ALL_COLUMNS.search("SELECT * FROM own.letter")
    assert _ALL_COLUMNS.search("SELECT g.*, 1")
    assert not _ALL_COLUMNS.search("SELECT count(*) FROM own.letter")
