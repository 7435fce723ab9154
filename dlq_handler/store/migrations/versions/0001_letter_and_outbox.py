"""Letters and the outbox.

Names are bare: the search_path of a migration is our own schema and nothing else. Inserts into both tables
are the hot path, so an index is here only if a statement of this folder cannot do without it.
"""

from alembic import op

revision = "0001"
down_revision = None

_STATEMENTS = (
    """
    CREATE TABLE letter (
        id                bigserial PRIMARY KEY,
        key               text NOT NULL UNIQUE,
        message_id        text,
        correlation_id    text,
        message_type      text,
        execution_id      bigint,
        worker_id         bigint,
        action_ref        text,
        queue             text,
        reason            text NOT NULL,
        death_count       bigint,
        died_at           timestamptz,
        first_death_queue text,
        exchange          text NOT NULL,
        routing_key       text NOT NULL,
        stamp             timestamptz,
        body              bytea NOT NULL,
        body_size         bigint NOT NULL,
        flaw              text,
        outcome           text NOT NULL CHECK (outcome IN (
            'failed', 'already_terminal', 'stale_attempt', 'superseded', 'left_to_monitor',
            'unknown_execution', 'foreign', 'unreadable', 'update_failed')),
        why               text NOT NULL,
        error             text,
        tries             integer NOT NULL DEFAULT 0,
        next_try_at       timestamptz,
        repeats           integer NOT NULL DEFAULT 0,
        received_at       timestamptz NOT NULL,
        judged_at         timestamptz NOT NULL,
        instance          text NOT NULL
    )
    """,
    # Few, so nearly free, and what people and retries ask for.
    """
    CREATE INDEX letter_unresolved_idx ON letter (outcome, id)
     WHERE outcome IN ('unknown_execution', 'foreign', 'unreadable', 'update_failed')
    """,
    # For the sweep and for --since. Letters arrive in order of time, which is all that BRIN needs.
    "CREATE INDEX letter_received_idx ON letter USING brin (received_at) WITH (pages_per_range = 32)",
    """
    CREATE TABLE outbox (
        id               bigserial PRIMARY KEY,
        message_id       uuid NOT NULL UNIQUE,
        correlation_id   uuid NOT NULL,
        execution_id     bigint NOT NULL,
        is_workflow_task boolean NOT NULL,
        exchange         text NOT NULL,
        routing_key      text NOT NULL,
        body             bytea NOT NULL,
        created_at       timestamptz NOT NULL,
        attempts         integer NOT NULL DEFAULT 0,
        maybe_sent       boolean NOT NULL DEFAULT false,
        next_try_at      timestamptz NOT NULL,
        lease_holder     text,
        lease_until      timestamptz,
        confirmed_at     timestamptz,
        last_error       text
    )
    """,
    "CREATE INDEX outbox_pending_idx ON outbox (id) WHERE confirmed_at IS NULL",
    # Finds an older notice of the same execution, which must go first.
    "CREATE INDEX outbox_line_idx ON outbox (execution_id, id) WHERE confirmed_at IS NULL",
    "CREATE INDEX outbox_confirmed_idx ON outbox USING brin (created_at) WITH (pages_per_range = 32)",
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
