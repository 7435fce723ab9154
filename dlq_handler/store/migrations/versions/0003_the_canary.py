"""The canary's probes: sent by one process, seen by any.

Names are bare: the search_path of a migration is our own schema and nothing else.
"""

from alembic import op

revision = "0003"
down_revision = "0002"

_STATEMENTS = (
    # A few rows for each worker: what newer ones have made worthless is swept by whoever sends. `queue` is the intake
    # queue that a probe is to arrive in: a copy that arrives in another one (a shadow's, an earlier setting's) proves
    # nothing about it. `sent_at` stays empty until the broker has taken the probe over.
    """
    CREATE TABLE canary (
        id          uuid PRIMARY KEY,
        worker_id   bigint NOT NULL,
        queue       text NOT NULL,
        ttl_seconds double precision NOT NULL,
        created_at  timestamptz NOT NULL,
        sent_at     timestamptz,
        sent_by     text NOT NULL,
        seen_at     timestamptz,
        seen_by     text
    )
    """,
    "CREATE INDEX canary_queue_idx ON canary (queue, worker_id, created_at)",
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
