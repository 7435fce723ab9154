"""What operators see and steer: letters counted by group and minute, what happened when, and who did what.

Names are bare: the search_path of a migration is our own schema and nothing else. Old letters get no group: nobody
counted them, and to write them all over would lock the table for minutes.
"""

from alembic import op

revision = "0004"
down_revision = "0003"

_STATEMENTS = (
    # NULL: not counted, which is so for letters of a shadow, of a game day, and of before this table was.
    "ALTER TABLE letter ADD COLUMN group_id text",
    "ALTER TABLE letter ADD COLUMN headers jsonb NOT NULL DEFAULT '{}'",
    # A notice of a game day is published as any other, and counted by nobody.
    "ALTER TABLE outbox ADD COLUMN is_game_day boolean NOT NULL DEFAULT false",
    # For pages of what people ask for, newest first. In a flood the rare ones would else be looked for through all of
    # it, which takes minutes when minutes count. Ids rise, so that all but two of these are written at their ends.
    "CREATE INDEX letter_group_idx ON letter (group_id, id)",
    "CREATE INDEX letter_worker_idx ON letter (worker_id, id)",
    "CREATE INDEX letter_action_idx ON letter (action_ref, id)",
    "CREATE INDEX letter_message_idx ON letter (message_id)",
    "CREATE INDEX letter_correlation_idx ON letter (correlation_id)",
    # The rare ones are what people look for, and on the way in they cost nothing: nearly every letter expired, and
    # nearly every one failed its execution.
    "DROP INDEX letter_unresolved_idx",
    "CREATE INDEX letter_outcome_idx ON letter (outcome, id) WHERE outcome <> 'failed'",
    "CREATE INDEX letter_reason_idx ON letter (reason, id) WHERE reason <> 'expired'",
    # Kept letters of a group in the order in which they are put up, and all that are due: few, except when they are a
    # million, and then nobody must read them all to find the first.
    """
    CREATE INDEX letter_kept_idx ON letter (group_id, next_try_at NULLS FIRST, judged_at, id)
     WHERE outcome IN ('foreign', 'unknown_execution', 'update_failed') AND NOT is_shadow
    """,
    "CREATE INDEX letter_due_idx ON letter (next_try_at, id) WHERE next_try_at IS NOT NULL",
    # One row for each group that ever was; its counts are those of its whole life. Room on every page, because the
    # same few rows are updated with each batch.
    """
    CREATE TABLE letter_group (
        id        text PRIMARY KEY,
        cause     text NOT NULL,
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
    # By the minute of their arrival: what the chart and the list of groups are made of, however many letters there are.
    # `last_id` is that of a letter of this minute, near its end: by it a page of an old hour begins at the right place.
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
    # Which letters were swept in which hour: a link to one of them says so, instead of that it never was.
    "CREATE TABLE swept (hour timestamptz PRIMARY KEY, at timestamptz NOT NULL, ids int8multirange NOT NULL)",
    # The same for groups, whose ids do not follow each other.
    "CREATE TABLE swept_group (id text PRIMARY KEY, at timestamptz NOT NULL)",
    # For executions one row for each sweep: their ids do not follow each other, and a row of an hour would be written
    # over and over while a flood is swept.
    "CREATE TABLE swept_execution (at timestamptz NOT NULL, span int8range NOT NULL, ids bigint[] NOT NULL)",
    "CREATE INDEX swept_execution_span_idx ON swept_execution USING gist (span)",
    # Workers that are not registered any more, and of which the chronicle has nothing left.
    "CREATE TABLE swept_worker (id bigint PRIMARY KEY, at timestamptz NOT NULL)",
    # What all replicas have to tell, in the order of its commits. Written one transaction at a time (happenings.py).
    """
    CREATE TABLE happening (
        id       bigserial PRIMARY KEY,
        at       timestamptz NOT NULL,
        part     text NOT NULL,
        kind     text NOT NULL,
        subject  text,
        detail   text,
        instance text NOT NULL
    )
    """,
    "CREATE INDEX happening_at_idx ON happening (at)",
    # A minute in which somebody looked: at letters (a consumer was open), at workers (there was a leader).
    "CREATE TABLE seen_minute (part text NOT NULL, minute timestamptz NOT NULL, PRIMARY KEY (part, minute))",
    # One row for each change of a worker's availability, which holds until the next one. NULL: its row is gone.
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
    # The audit: appended, never changed.
    """
    CREATE TABLE operation (
        id     bigserial PRIMARY KEY,
        at     timestamptz NOT NULL,
        who    text NOT NULL,
        via    text NOT NULL,
        what   text NOT NULL,
        target text,
        reason text,
        result text NOT NULL
    )
    """,
    # No row: nobody has muted anything.
    """
    CREATE TABLE mute (
        is_the_row boolean PRIMARY KEY DEFAULT true CHECK (is_the_row),
        at         timestamptz NOT NULL,
        until      timestamptz NOT NULL,
        by         text NOT NULL,
        reason     text NOT NULL
    )
    """,
    # What the webhook told last of each kind, for the next leader; `about` as a diagnosis has it.
    """
    CREATE TABLE notified (
        kind     text PRIMARY KEY,
        health   text NOT NULL,
        sentence text NOT NULL,
        at       timestamptz NOT NULL,
        about    text NOT NULL
    )
    """,
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
