"""Flows: the queues that dlq-handler owns, and the stops that are under way.

Names are bare, as in 0001. `flow` has one row for each flow and each retired worker queue: few rows, updated in place.
"""

from alembic import op

revision = "0002"
down_revision = "0001"

_STATEMENTS = (
    # `version` rises with each write, and each write names the version that it read. `made`: queues that this start
    # created and that a rollback deletes. `idle_heartbeat`: the worker's heartbeat when the stop found it idle, so that
    # a newer one shows that the worker has returned. `is_retired_bound`: its keys lead to the retired queue.
    """
    CREATE TABLE flow (
        id                    text PRIMARY KEY,
        kind                  text NOT NULL CHECK (kind IN ('flow', 'retirement')),
        blueprint             text NOT NULL,
        params                jsonb NOT NULL,
        status                text NOT NULL CHECK (status IN ('starting', 'active', 'stopping', 'stopped')),
        step                  text CHECK (step IN (
            'signalled', 'idle', 'rerouted', 'drained', 'deleted', 'stopped')),
        version               bigint NOT NULL DEFAULT 1,
        worker_id             bigint,
        queues                jsonb NOT NULL,
        made                  jsonb NOT NULL DEFAULT '[]',
        has_cordoned          boolean NOT NULL DEFAULT false,
        idle_heartbeat        timestamptz,
        is_retired_bound      boolean NOT NULL DEFAULT false,
        since                 timestamptz NOT NULL,
        step_since            timestamptz NOT NULL,
        rerouted_at           timestamptz,
        aborted_at            timestamptz,
        delete_attempts       integer NOT NULL DEFAULT 0,
        next_attempt_at       timestamptz,
        leaked                jsonb NOT NULL DEFAULT '[]',
        archived              bigint NOT NULL DEFAULT 0,
        archived_beyond_limit bigint NOT NULL DEFAULT 0,
        wanted_by             text NOT NULL,
        comment               text,
        last_error            text,
        last_lease            text
    ) WITH (fillfactor = 50)
    """,
    # The target of an operation that is about no dead letter, such as a flow.
    "ALTER TABLE operation ADD COLUMN subject text",
    # One more outcome. NOT VALID: the rows on record passed the narrower check, so the table is not read under the
    # lock, and new rows are checked all the same.
    "ALTER TABLE letter DROP CONSTRAINT letter_outcome_check",
    """
    ALTER TABLE letter ADD CONSTRAINT letter_outcome_check CHECK (outcome IN (
        'failed', 'already_terminal', 'stale_attempt', 'superseded', 'left_to_monitor',
        'unknown_execution', 'unrelated', 'unreadable', 'update_failed', 'deferred', 'archived')) NOT VALID
    """,
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
