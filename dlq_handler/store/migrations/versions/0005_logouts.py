"""Logouts: a session's cookie is signed and known by every replica, so its early end must be known by all too.

Names are bare: the search_path of a migration is our own schema and nothing else.
"""

from alembic import op

revision = "0005"
down_revision = "0004"

_STATEMENTS = (
    # A digest of the cookie, never the cookie. Rows are deleted when the session would have ended by itself.
    """
    CREATE TABLE logout (
        digest text PRIMARY KEY,
        until  timestamptz NOT NULL
    )
    """,
    "CREATE INDEX logout_until_idx ON logout (until)",
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
