"""Find due entries of the outbox by an index; keep how far the leader has read.

Names are bare: the search_path of a migration is our own schema and nothing else.
"""

from alembic import op

revision = "0006"
down_revision = "0005"

_STATEMENTS = (
    # With many entries that wait for their next try, a relay that finds none due must not read them all. Replaces
    # `outbox_pending_idx`: its other users need only the condition.
    "CREATE INDEX outbox_due_idx ON outbox (next_try_at, id) WHERE confirmed_at IS NULL",
    "DROP INDEX outbox_pending_idx",
    # One row for each kind of scan that goes on where the last one ended.
    "CREATE TABLE progress (name text PRIMARY KEY, until timestamptz NOT NULL)",
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
