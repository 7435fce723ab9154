"""Evidence of letters; the monitor's verdicts, looks and lease; the brake.

Names are bare: the search_path of a migration is our own schema and nothing else.
"""

from alembic import op

revision = "0002"
down_revision = "0001"

_STATEMENTS = (
    "ALTER TABLE letter ADD COLUMN evidence jsonb NOT NULL DEFAULT '{}'",
    "ALTER TABLE letter ADD COLUMN is_shadow boolean NOT NULL DEFAULT false",
    # For the story of one execution, and to know an execution again that a late worker brought back.
    "CREATE INDEX letter_execution_idx ON letter (execution_id)",
    # One row for every decision about one attempt of an execution that no letter told us about.
    """
    CREATE TABLE stale_verdict (
        id               bigserial PRIMARY KEY,
        execution_id     bigint NOT NULL,
        attempt          timestamptz NOT NULL,
        original_status  text NOT NULL,
        outcome          text NOT NULL CHECK (outcome IN (
            'failed', 'abandoned', 'cancelled', 'reannounced', 'announced', 'resurrected', 'update_failed')),
        worker_id        bigint,
        why              text NOT NULL,
        evidence         jsonb NOT NULL,
        error            text,
        tries            integer NOT NULL DEFAULT 0,
        next_try_at      timestamptz,
        is_shadow        boolean NOT NULL DEFAULT false,
        decided_at       timestamptz NOT NULL,
        instance         text NOT NULL,
        UNIQUE (execution_id, attempt, outcome, is_shadow)
    )
    """,
    "CREATE INDEX stale_verdict_decided_idx ON stale_verdict USING brin (decided_at) WITH (pages_per_range = 32)",
    # What the leader saw of a worker at its last looks; shared, so that a new leader goes on where the old one ended.
    # The looks of a replica that only watches are its own: with them, the first look of the real leader would count
    # as a second one.
    """
    CREATE TABLE worker_look (
        worker_id         bigint NOT NULL,
        is_shadow         boolean NOT NULL,
        last_heartbeat    timestamptz,
        unavailable_since timestamptz,
        empty_since       timestamptz,
        unattended_since  timestamptz,
        looked_at         timestamptz NOT NULL,
        PRIMARY KEY (worker_id, is_shadow)
    )
    """,
    "CREATE TABLE lease (name text PRIMARY KEY, holder text NOT NULL, until timestamptz NOT NULL)",
    # One row for all replicas.
    """
    CREATE TABLE brake (
        is_the_row     boolean PRIMARY KEY DEFAULT true CHECK (is_the_row),
        tripped_at     timestamptz,
        hold_until     timestamptz,
        tripped_by     text,
        why            text,
        released_at    timestamptz,
        released_until timestamptz,
        released_by    text
    )
    """,
    "INSERT INTO brake DEFAULT VALUES",
    # One row for each transaction that changed executions. Appended, never updated: a counter that all replicas
    # update would be a lock that they all wait for.
    "CREATE TABLE change_count (at timestamptz NOT NULL, changed integer NOT NULL)",
    "CREATE INDEX change_count_at_idx ON change_count (at)",
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
