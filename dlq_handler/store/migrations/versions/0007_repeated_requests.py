"""How often the request of an execution was published again; when a dead letter arrived again.

Names are bare: the search_path of a migration is our own schema and nothing else.
"""

from alembic import op

revision = "0007"
down_revision = "0006"

_STATEMENTS = (
    # Per execution, whatever the state of its row: a scheduler without a worker takes a request up and puts it back,
    # which makes a new state each time.
    """
    CREATE TABLE repeated_request (
        id           bigserial PRIMARY KEY,
        execution_id bigint NOT NULL,
        is_shadow    boolean NOT NULL,
        requests     integer NOT NULL,
        last_at      timestamptz NOT NULL,
        UNIQUE (execution_id, is_shadow)
    )
    """,
    "ALTER TABLE letter ADD COLUMN repeated_at timestamptz",
    # For the number of executions that the scheduler turned down lately.
    """
    CREATE INDEX letter_rejected_request_idx ON letter (greatest(received_at, repeated_at))
     WHERE routing_key = 'execution.requested' AND reason = 'rejected' AND NOT is_shadow
    """,
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
