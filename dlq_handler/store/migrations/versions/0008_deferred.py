"""Dead letters that are recorded undecided.

Names are bare: the search_path of a migration is our own schema and nothing else.
"""

from alembic import op

revision = "0008"
down_revision = "0007"

_STATEMENTS = (
    "ALTER TABLE letter DROP CONSTRAINT letter_outcome_check",
    # Not checked for the rows that are there: each has one of the former outcomes, and a check would read them all.
    """
    ALTER TABLE letter ADD CONSTRAINT letter_outcome_check CHECK (outcome IN (
        'failed', 'already_terminal', 'stale_attempt', 'superseded', 'left_to_monitor',
        'unknown_execution', 'foreign', 'unreadable', 'update_failed', 'deferred')) NOT VALID
    """,
    # The condition names the outcomes that can be decided again, word for word as the statements do.
    "DROP INDEX letter_kept_idx",
    """
    CREATE INDEX letter_kept_idx ON letter (group_id, next_try_at NULLS FIRST, judged_at, id)
     WHERE outcome IN ('deferred', 'foreign', 'unknown_execution', 'update_failed') AND NOT is_shadow
    """,
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
