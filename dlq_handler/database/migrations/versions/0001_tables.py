"""The tables of dlq-handler.

Names are bare: the search_path of a migration is the schema of dlq-handler and nothing else. Inserts into `letter` and
`outbox` are the hot path, so each index on them serves a statement that cannot do without it.
"""

from alembic import op

revision = "0001"
down_revision = None

_STATEMENTS = (
    # The oldest program that can use these tables. A migration that needs a newer one updates the row.
    """
    CREATE TABLE compatibility (
        singleton             boolean PRIMARY KEY DEFAULT true CHECK (singleton),
        least_program_version text NOT NULL
    )
    """,
    "INSERT INTO compatibility (least_program_version) VALUES ('0.1.0')",
    # group_id NULL: not counted in a group (shadow mode).
    """
    CREATE TABLE letter (
        id                 bigserial PRIMARY KEY,
        key                text NOT NULL UNIQUE,
        message_id         text,
        correlation_id     text,
        message_type       text,
        execution_id       bigint,
        worker_id          bigint,
        action_ref         text,
        queue              text,
        reason             text NOT NULL,
        death_count        bigint,
        died_at            timestamptz,
        first_death_queue  text,
        exchange           text NOT NULL,
        routing_key        text NOT NULL,
        attempt_updated_at timestamptz,
        body               bytea NOT NULL,
        body_size          bigint NOT NULL,
        parse_error        text,
        outcome            text NOT NULL CHECK (outcome IN (
            'failed', 'already_terminal', 'stale_attempt', 'superseded', 'left_to_monitor',
            'unknown_execution', 'unrelated', 'unreadable', 'update_failed', 'deferred')),
        explanation        text NOT NULL,
        error              text,
        attempts           integer NOT NULL DEFAULT 0,
        next_attempt_at    timestamptz,
        repeats            integer NOT NULL DEFAULT 0,
        received_at        timestamptz NOT NULL,
        decided_at         timestamptz NOT NULL,
        replica            text NOT NULL,
        evidence           jsonb NOT NULL DEFAULT '{}',
        is_shadow          boolean NOT NULL DEFAULT false,
        group_id           text,
        headers            jsonb NOT NULL DEFAULT '{}',
        repeated_at        timestamptz
    )
    """,
    # For retention and for --since. Dead letters arrive in order of time, which is all that BRIN needs.
    "CREATE INDEX letter_received_idx ON letter USING brin (received_at) WITH (pages_per_range = 32)",
    # For `explain`, and to recognize an execution that a late worker set running again.
    "CREATE INDEX letter_execution_idx ON letter (execution_id)",
    # For pages of search results, newest first: without them a rare value is searched through a whole flood.
    # Ids rise, so that all but two of these are written at their ends.
    "CREATE INDEX letter_group_idx ON letter (group_id, id)",
    "CREATE INDEX letter_worker_idx ON letter (worker_id, id)",
    "CREATE INDEX letter_action_idx ON letter (action_ref, id)",
    "CREATE INDEX letter_message_idx ON letter (message_id)",
    "CREATE INDEX letter_correlation_idx ON letter (correlation_id)",
    # Only the rare values: nearly every dead letter expired and failed its execution, and costs nothing here.
    "CREATE INDEX letter_outcome_idx ON letter (outcome, id) WHERE outcome <> 'failed'",
    "CREATE INDEX letter_reason_idx ON letter (reason, id) WHERE reason <> 'expired'",
    # The order in which the dead letters of a group are queued for reprocessing. The condition names the outcomes that
    # can be decided again, word for word as the statements do.
    """
    CREATE INDEX letter_kept_idx ON letter (group_id, next_attempt_at NULLS FIRST, decided_at, id)
     WHERE outcome IN ('deferred', 'unrelated', 'unknown_execution', 'update_failed') AND NOT is_shadow
    """,
    "CREATE INDEX letter_due_idx ON letter (next_attempt_at, id) WHERE next_attempt_at IS NOT NULL",
    # For the number of executions whose requests the scheduler rejected lately.
    """
    CREATE INDEX letter_rejected_request_idx ON letter (greatest(received_at, repeated_at))
     WHERE routing_key = 'execution.requested' AND reason = 'rejected' AND NOT is_shadow
    """,
    # One row for each group that ever was, with counts of its whole life. Room on every page, because the same few
    # rows are updated with each batch.
    """
    CREATE TABLE letter_group (
        id        text PRIMARY KEY,
        category  text NOT NULL,
        reason    text NOT NULL,
        queue     text,
        detail    text,
        worker_id bigint,
        first_at  timestamptz NOT NULL,
        last_at   timestamptz NOT NULL,
        letters   bigint NOT NULL,
        failed    bigint NOT NULL,
        actions   text[] NOT NULL
    ) WITH (fillfactor = 50)
    """,
    # By the minute of arrival: the source of the chart and the list of groups, whatever the number of dead letters.
    # `last_id` is a dead letter near the end of this minute: a page of an old hour begins there.
    """
    CREATE TABLE letter_minute (
        minute   timestamptz NOT NULL,
        group_id text NOT NULL,
        letters  bigint NOT NULL,
        failed   bigint NOT NULL,
        last_at  timestamptz NOT NULL,
        last_id  bigint,
        PRIMARY KEY (minute, group_id)
    ) WITH (fillfactor = 50)
    """,
    # `problem` is written with `last_error`, which is text for people and is never compared.
    """
    CREATE TABLE outbox (
        id                 bigserial PRIMARY KEY,
        message_id         uuid NOT NULL UNIQUE,
        correlation_id     uuid NOT NULL,
        execution_id       bigint NOT NULL,
        is_workflow_task   boolean NOT NULL,
        exchange           text NOT NULL,
        routing_key        text NOT NULL,
        body               bytea NOT NULL,
        created_at         timestamptz NOT NULL,
        attempts           integer NOT NULL DEFAULT 0,
        possibly_published boolean NOT NULL DEFAULT false,
        next_attempt_at    timestamptz NOT NULL,
        lease_holder       text,
        lease_until        timestamptz,
        confirmed_at       timestamptz,
        problem            text CHECK (problem IN ('unroutable', 'withheld')),
        last_error         text
    )
    """,
    # With many entries that wait for their next attempt, a relay that finds none due must not read them all.
    "CREATE INDEX outbox_due_idx ON outbox (next_attempt_at, id) WHERE confirmed_at IS NULL",
    # Finds an older event of the same execution, which must be published first.
    "CREATE INDEX outbox_line_idx ON outbox (execution_id, id) WHERE confirmed_at IS NULL",
    "CREATE INDEX outbox_confirmed_idx ON outbox USING brin (created_at) WITH (pages_per_range = 32)",
    # One row for each decision of the timeout monitor about one attempt of an execution.
    """
    CREATE TABLE stale_decision (
        id                 bigserial PRIMARY KEY,
        execution_id       bigint NOT NULL,
        attempt_updated_at timestamptz NOT NULL,
        original_status    text NOT NULL,
        outcome            text NOT NULL CHECK (outcome IN (
            'failed', 'abandoned', 'cancelled', 'request_republished', 'completion_published', 'reverted_by_worker',
            'update_failed')),
        worker_id          bigint,
        explanation        text NOT NULL,
        evidence           jsonb NOT NULL,
        error              text,
        attempts           integer NOT NULL DEFAULT 0,
        next_attempt_at    timestamptz,
        is_shadow          boolean NOT NULL DEFAULT false,
        decided_at         timestamptz NOT NULL,
        replica            text NOT NULL,
        UNIQUE (execution_id, attempt_updated_at, outcome, is_shadow)
    )
    """,
    "CREATE INDEX stale_decision_decided_idx ON stale_decision USING brin (decided_at) WITH (pages_per_range = 32)",
    # How often the request of an execution was published again. Per execution, whatever the state of its row: a
    # scheduler without a worker takes a request and puts it back, which makes a new state each time.
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
    # What the leader observed of a worker at its last checks, so that a new leader continues from there. A replica in
    # shadow mode has rows of its own. Otherwise the first check of the real leader would count as a second one.
    """
    CREATE TABLE worker_observation (
        worker_id         bigint NOT NULL,
        is_shadow         boolean NOT NULL,
        last_heartbeat    timestamptz,
        unavailable_since timestamptz,
        empty_since       timestamptz,
        unconsumed_since  timestamptz,
        observed_at       timestamptz NOT NULL,
        PRIMARY KEY (worker_id, is_shadow)
    )
    """,
    # Connections that consume the queues of workers, to detect a worker that was restarted under its name. Shadow mode
    # as in worker_observation.
    """
    CREATE TABLE worker_connection (
        worker_id     bigint NOT NULL,
        is_shadow     boolean NOT NULL,
        connection    text,
        checked_at    timestamptz NOT NULL,
        observed_at   timestamptz,
        absent_at     timestamptz,
        found_at      timestamptz,
        missing_since timestamptz,
        shared_from   timestamptz,
        shared_since  timestamptz,
        shared_until  timestamptz,
        PRIMARY KEY (worker_id, is_shadow)
    )
    """,
    # Queues of the host's services that have no consumer, and workers that report while they are inactive. A row
    # without times: the queue had a consumer at the last check.
    """
    CREATE TABLE service_observation (
        queue              text PRIMARY KEY,
        unconsumed_since   timestamptz,
        consumed_at        timestamptz,
        restarted_at       timestamptz,
        connection_lost_at timestamptz,
        first_heartbeat    timestamptz,
        inactive_heartbeat timestamptz
    )
    """,
    # When the queue of completion events had no consumer: from the first to the last check that found none.
    # `is_open`: the latest check is one of them.
    """
    CREATE TABLE unconsumed_interval (
        id               bigserial PRIMARY KEY,
        began_at         timestamptz NOT NULL,
        last_observed_at timestamptz NOT NULL,
        is_open          boolean NOT NULL
    )
    """,
    "CREATE INDEX unconsumed_interval_observed_idx ON unconsumed_interval (last_observed_at)",
    "CREATE TABLE lease (name text PRIMARY KEY, holder text NOT NULL, until timestamptz NOT NULL)",
    # One row for each kind of scan that continues where the last one ended.
    "CREATE TABLE progress (name text PRIMARY KEY, until timestamptz NOT NULL)",
    # One row for all replicas.
    """
    CREATE TABLE brake (
        singleton      boolean PRIMARY KEY DEFAULT true CHECK (singleton),
        tripped_at     timestamptz,
        hold_until     timestamptz,
        tripped_by     text,
        explanation    text,
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
    # A few rows for each worker. `queue` is the intake queue that a canary is to arrive in: a copy that arrives in
    # another one (of shadow mode, of an earlier setting) proves nothing about it. `sent_at` is empty until the broker
    # has confirmed the canary.
    """
    CREATE TABLE canary (
        id          uuid PRIMARY KEY,
        worker_id   bigint NOT NULL,
        queue       text NOT NULL,
        ttl_seconds double precision NOT NULL,
        created_at  timestamptz NOT NULL,
        sent_at     timestamptz,
        sent_by     text NOT NULL,
        received_at timestamptz,
        received_by text
    )
    """,
    "CREATE INDEX canary_queue_idx ON canary (queue, worker_id, created_at)",
    # The events of all replicas, in the order of their commits. Written one transaction at a time (events.py).
    """
    CREATE TABLE history_event (
        id      bigserial PRIMARY KEY,
        at      timestamptz NOT NULL,
        topic   text NOT NULL,
        kind    text NOT NULL,
        subject text,
        detail  text,
        replica text NOT NULL
    )
    """,
    "CREATE INDEX history_event_at_idx ON history_event (at)",
    # A minute with an observer: of dead letters (a consumer was open), of workers (there was a leader). `quarters` has
    # one bit for each 15 seconds.
    """
    CREATE TABLE observed_minute (
        topic    text NOT NULL,
        minute   timestamptz NOT NULL,
        quarters smallint NOT NULL DEFAULT 15,
        PRIMARY KEY (topic, minute)
    )
    """,
    # One row for each change of a worker's availability, valid until the next one. NULL: its row was deleted.
    """
    CREATE TABLE worker_change (
        worker_id    bigint NOT NULL,
        at           timestamptz NOT NULL,
        name         text NOT NULL,
        availability text,
        PRIMARY KEY (worker_id, at)
    )
    """,
    "CREATE TABLE diagnosis_change (id bigserial PRIMARY KEY, at timestamptz NOT NULL, diagnoses jsonb NOT NULL)",
    "CREATE INDEX diagnosis_change_at_idx ON diagnosis_change (at)",
    # One row: the leader's last observation, as text in pieces, replaced every few seconds.
    """
    CREATE TABLE shared_view (
        id               smallint PRIMARY KEY CHECK (id = 1),
        at               timestamptz NOT NULL,
        interval_seconds double precision NOT NULL,
        replica          text NOT NULL,
        parts            text[] NOT NULL
    )
    """,
    # The audit: appended, never changed.
    """
    CREATE TABLE operation (
        id       bigserial PRIMARY KEY,
        at       timestamptz NOT NULL,
        username text NOT NULL,
        client   text NOT NULL,
        action   text NOT NULL,
        letter_ids bigint[] NOT NULL,
        group_id text,
        comment  text,
        result   text NOT NULL
    )
    """,
    # A digest of the session's cookie, never the cookie. Rows are deleted when the session would have expired.
    "CREATE TABLE logout (digest text PRIMARY KEY, until timestamptz NOT NULL)",
    "CREATE INDEX logout_until_idx ON logout (until)",
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
