-- The part of stock Attune's database that executions, workers, lines and workflows live in, with every enum of it.
--
-- Run with search_path set to the wanted schema (schema.py does it). Nothing here names that schema: like Attune's
-- own trigger functions, ours find their tables by the search_path of the session that changes a row, so a connection without
-- it cannot update an execution at all.

CREATE TYPE execution_status AS ENUM (
    'requested', 'scheduling', 'scheduled', 'running', 'completed',
    'failed', 'canceling', 'cancelled', 'timeout', 'abandoned');
CREATE TYPE worker_status AS ENUM ('active', 'inactive', 'busy', 'error');
CREATE TYPE worker_type AS ENUM ('local', 'remote', 'container');
CREATE TYPE worker_role AS ENUM ('action', 'sensor');
CREATE TYPE policy_method AS ENUM ('cancel', 'enqueue');
CREATE TYPE notification_status AS ENUM ('created', 'queued', 'processing', 'error');
CREATE TYPE enforcement_status AS ENUM ('created', 'processed', 'disabled');
CREATE TYPE artifact_retention AS ENUM ('versions', 'days', 'hours', 'minutes');
CREATE TYPE audit_category AS ENUM ('api', 'auth', 'rbac', 'secret', 'admin', 'execution', 'pack');
CREATE TYPE audit_outcome AS ENUM ('success', 'failure', 'denied');
-- Types of tables that are not here: a query for Attune's types finds all of them.
CREATE TYPE inquiry_status AS ENUM ('pending', 'responded', 'timeout', 'cancelled');
CREATE TYPE work_queue_item_status AS ENUM (
    'queued', 'leased', 'retry', 'completed', 'failed', 'skipped', 'cancelled');
CREATE TYPE work_queue_dispatch_status AS ENUM (
    'leased', 'dispatched', 'completed', 'failed', 'released', 'cancelled');
CREATE TYPE owner_type AS ENUM ('system', 'identity', 'pack', 'action', 'sensor');
CREATE TYPE sensor_process_status AS ENUM ('starting', 'running', 'stopped', 'failed', 'backoff');
CREATE TYPE pack_environment_status AS ENUM ('pending', 'installing', 'ready', 'failed', 'outdated');

-- now() is the start of the transaction: every row changed in one transaction gets the same stamp.
CREATE FUNCTION set_updated() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.updated := now();
    RETURN NEW;
END $$;

-- ---------------------------------------------------------------- who and what

CREATE TABLE identity (
    id           bigserial PRIMARY KEY,
    login        text NOT NULL UNIQUE,
    display_name text,
    created      timestamptz NOT NULL DEFAULT now(),
    updated      timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE pack (
    id      bigserial PRIMARY KEY,
    ref     text NOT NULL UNIQUE CHECK (ref ~ '^[a-z][a-z0-9_-]+$'),
    label   text NOT NULL,
    version text NOT NULL CHECK (version ~ '^\d+\.\d+\.\d+'),
    created timestamptz NOT NULL DEFAULT now(),
    updated timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE runtime (
    id       bigserial PRIMARY KEY,
    ref      text NOT NULL UNIQUE,
    pack     bigint REFERENCES pack ON DELETE CASCADE,
    pack_ref text,
    name     text NOT NULL,
    created  timestamptz NOT NULL DEFAULT now(),
    updated  timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE workflow_definition (
    id         bigserial PRIMARY KEY,
    ref        text NOT NULL UNIQUE,
    pack       bigint NOT NULL REFERENCES pack ON DELETE CASCADE,
    pack_ref   text NOT NULL,
    label      text NOT NULL,
    version    text NOT NULL,
    definition jsonb NOT NULL DEFAULT '{}',
    created    timestamptz NOT NULL DEFAULT now(),
    updated    timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE action (
    id                         bigserial PRIMARY KEY,
    ref                        text NOT NULL UNIQUE CHECK (ref = lower(ref) AND ref ~ '^[^.]+\.[^.]+$'),
    pack                       bigint NOT NULL REFERENCES pack ON DELETE CASCADE,
    pack_ref                   text NOT NULL,
    label                      text NOT NULL,
    entrypoint                 text NOT NULL,
    runtime                    bigint REFERENCES runtime ON DELETE SET NULL,
    parameter_delivery         text NOT NULL DEFAULT 'stdin',
    parameter_format           text NOT NULL DEFAULT 'json',
    output_format              text NOT NULL DEFAULT 'text',
    timeout_seconds            integer,
    max_retries                integer DEFAULT 0,
    runtime_version_constraint text,
    workflow_def               bigint REFERENCES workflow_definition ON DELETE SET NULL,
    required_worker_runtimes   jsonb NOT NULL DEFAULT '{}',
    worker_selector            jsonb NOT NULL DEFAULT '{}',
    worker_tolerations         jsonb NOT NULL DEFAULT '[]',
    worker_affinity            jsonb NOT NULL DEFAULT '{}',
    created                    timestamptz NOT NULL DEFAULT now(),
    updated                    timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE policy (
    id         bigserial PRIMARY KEY,
    ref        text NOT NULL UNIQUE CHECK (ref ~ '^[^.]+\.[^.]+$'),
    pack       bigint REFERENCES pack ON DELETE CASCADE,
    pack_ref   text,
    action     bigint REFERENCES action ON DELETE CASCADE,
    action_ref text,
    parameters text[] NOT NULL DEFAULT '{}',
    method     policy_method NOT NULL,
    threshold  integer NOT NULL CHECK (threshold > 0),
    name       text NOT NULL,
    tags       text[] NOT NULL DEFAULT '{}',
    created    timestamptz NOT NULL DEFAULT now(),
    updated    timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE enforcement (
    id          bigserial PRIMARY KEY,
    rule        bigint,
    rule_ref    text NOT NULL,
    trigger_ref text NOT NULL,
    event       bigint,
    config      jsonb,
    payload     jsonb NOT NULL DEFAULT '{}',
    status      enforcement_status NOT NULL DEFAULT 'created',
    created     timestamptz NOT NULL DEFAULT now()
);

-- ---------------------------------------------------------------- workers

CREATE TABLE worker (
    id             bigserial PRIMARY KEY,
    name           text NOT NULL UNIQUE,
    worker_type    worker_type NOT NULL,
    worker_role    worker_role NOT NULL,
    runtime        bigint REFERENCES runtime ON DELETE SET NULL,
    host           text,
    port           integer,
    status         worker_status NOT NULL DEFAULT 'active',
    capabilities   jsonb,
    meta           jsonb,
    last_heartbeat timestamptz,
    cordoned       boolean NOT NULL DEFAULT false,
    cordon_reason  text,
    cordoned_by    bigint REFERENCES identity ON DELETE SET NULL,
    cordoned_at    timestamptz,
    created        timestamptz NOT NULL DEFAULT now(),
    updated        timestamptz NOT NULL DEFAULT now()
);

CREATE VIEW healthy_workers AS
SELECT w.*,
       coalesce(w.capabilities #>> '{health,status}', 'healthy')           AS health_status,
       (w.capabilities #>> '{health,queue_depth}')::integer                AS queue_depth,
       (w.capabilities #>> '{health,consecutive_failures}')::integer       AS consecutive_failures
  FROM worker w
 WHERE w.status = 'active'
   AND w.last_heartbeat > now() - interval '30 seconds'
   AND (w.capabilities -> 'health' IS NULL OR w.capabilities #>> '{health,status}' IN ('healthy', 'degraded'));

CREATE FUNCTION get_worker_queue_depth(worker_id bigint) RETURNS integer LANGUAGE sql STABLE AS $$
    SELECT (capabilities #>> '{health,queue_depth}')::integer FROM worker WHERE id = worker_id
$$;

-- ---------------------------------------------------------------- executions

CREATE TABLE execution (
    id                        bigserial PRIMARY KEY,
    action                    bigint REFERENCES action ON DELETE SET NULL,
    action_ref                text NOT NULL,
    config                    jsonb,
    env_vars                  jsonb,
    parent                    bigint REFERENCES execution ON DELETE SET NULL,
    enforcement               bigint REFERENCES enforcement ON DELETE SET NULL,
    executor                  bigint REFERENCES identity ON DELETE SET NULL,  -- the user who triggered it
    permission_set_refs       text[] NOT NULL DEFAULT '{}',
    artifact_retention_policy artifact_retention,
    artifact_retention_limit  integer CHECK (artifact_retention_limit > 0),
    worker_selector           jsonb,
    worker_tolerations        jsonb,
    worker_affinity           jsonb,
    worker                    bigint REFERENCES worker ON DELETE SET NULL,
    status                    execution_status NOT NULL DEFAULT 'requested',
    result                    jsonb,
    started_at                timestamptz,
    created                   timestamptz NOT NULL DEFAULT now(),
    workflow_def              bigint REFERENCES workflow_definition ON DELETE SET NULL,
    workflow_task             jsonb,
    retry_count               integer NOT NULL DEFAULT 0,
    max_retries               integer,
    retry_reason              text,
    original_execution        bigint REFERENCES execution ON DELETE SET NULL,
    updated                   timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX execution_action_idx              ON execution (action);
CREATE INDEX execution_action_ref_idx          ON execution (action_ref);
CREATE INDEX execution_parent_idx              ON execution (parent);
CREATE INDEX execution_enforcement_idx         ON execution (enforcement);
CREATE INDEX execution_executor_idx            ON execution (executor);
CREATE INDEX execution_worker_idx              ON execution (worker);
CREATE INDEX execution_status_idx              ON execution (status);
CREATE INDEX execution_created_idx             ON execution (created DESC);
CREATE INDEX execution_updated_idx             ON execution (updated DESC);
CREATE INDEX execution_status_created_idx      ON execution (status, created DESC);
CREATE INDEX execution_status_updated_idx      ON execution (status, updated DESC);
CREATE INDEX execution_action_status_idx       ON execution (action, status);
CREATE INDEX execution_executor_created_idx    ON execution (executor, created DESC);
CREATE INDEX execution_worker_created_idx      ON execution (worker, created DESC);
CREATE INDEX execution_parent_created_idx      ON execution (parent, created DESC);
CREATE INDEX execution_result_idx              ON execution USING gin (result);
CREATE INDEX execution_env_vars_idx            ON execution USING gin (env_vars);
CREATE INDEX execution_permission_sets_idx     ON execution USING gin (permission_set_refs);
CREATE INDEX execution_worker_selector_idx     ON execution USING gin (worker_selector);
CREATE INDEX execution_worker_tolerations_idx  ON execution USING gin (worker_tolerations);
CREATE INDEX execution_worker_affinity_idx     ON execution USING gin (worker_affinity);
CREATE INDEX execution_original_idx            ON execution (original_execution)
    WHERE original_execution IS NOT NULL;
CREATE INDEX execution_retriable_idx           ON execution (status, retry_count)
    WHERE status = 'failed' AND retry_count < coalesce(max_retries, 0);
CREATE INDEX execution_root_created_idx        ON execution (created DESC)
    WHERE parent IS NULL;
CREATE UNIQUE INDEX execution_one_per_enforcement_idx ON execution (enforcement)
    WHERE enforcement IS NOT NULL AND parent IS NULL AND (config IS NULL OR NOT config ? 'retry_of');

CREATE FUNCTION is_execution_retriable(execution_id bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT status = 'failed' AND coalesce(max_retries, 0) > 0 AND retry_count < max_retries
      FROM execution WHERE id = execution_id
$$;

CREATE TABLE workflow_execution (
    id              bigserial PRIMARY KEY,
    execution       bigint NOT NULL UNIQUE REFERENCES execution ON DELETE CASCADE,
    workflow_def    bigint REFERENCES workflow_definition ON DELETE CASCADE,
    current_tasks   text[] NOT NULL DEFAULT '{}',
    completed_tasks text[] NOT NULL DEFAULT '{}',
    failed_tasks    text[] NOT NULL DEFAULT '{}',
    skipped_tasks   text[] NOT NULL DEFAULT '{}',
    variables       jsonb NOT NULL DEFAULT '{}',
    task_graph      jsonb NOT NULL DEFAULT '{}',
    status          execution_status NOT NULL DEFAULT 'requested',
    error_message   text,
    paused          boolean NOT NULL DEFAULT false,
    created         timestamptz NOT NULL DEFAULT now(),
    updated         timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE workflow_task_dispatch (
    id                 bigserial PRIMARY KEY,
    workflow_execution bigint NOT NULL REFERENCES workflow_execution ON DELETE CASCADE,
    task_name          text NOT NULL,
    task_index         integer,
    execution_id       bigint REFERENCES execution ON DELETE CASCADE,
    created            timestamptz NOT NULL DEFAULT now(),
    updated            timestamptz NOT NULL DEFAULT now()
);

-- ---------------------------------------------------------------- admission: one line per action and group

CREATE TABLE queue_stats (
    action_id          bigint PRIMARY KEY REFERENCES action ON DELETE CASCADE,
    queue_length       integer NOT NULL DEFAULT 0,
    active_count       integer NOT NULL DEFAULT 0,
    max_concurrent     integer NOT NULL DEFAULT 1,
    oldest_enqueued_at timestamptz,
    total_enqueued     bigint NOT NULL DEFAULT 0,
    total_completed    bigint NOT NULL DEFAULT 0,
    last_updated       timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE execution_admission_state (
    id                   bigserial PRIMARY KEY,
    action_id            bigint NOT NULL REFERENCES action ON DELETE CASCADE,
    group_key            text,
    group_key_normalized text GENERATED ALWAYS AS (coalesce(group_key, '')) STORED,
    max_concurrent       integer NOT NULL,
    next_queue_order     bigint NOT NULL DEFAULT 1,
    total_enqueued       bigint NOT NULL DEFAULT 0,
    total_completed      bigint NOT NULL DEFAULT 0,
    created              timestamptz NOT NULL DEFAULT now(),
    updated              timestamptz NOT NULL DEFAULT now(),
    UNIQUE (action_id, group_key_normalized)
);

CREATE TABLE execution_admission_entry (
    id           bigserial PRIMARY KEY,
    state_id     bigint NOT NULL REFERENCES execution_admission_state ON DELETE CASCADE,
    execution_id bigint NOT NULL UNIQUE REFERENCES execution ON DELETE CASCADE,
    status       text NOT NULL CHECK (status IN ('active', 'queued')),
    queue_order  bigint NOT NULL,
    enqueued_at  timestamptz NOT NULL DEFAULT now(),
    activated_at timestamptz,
    created      timestamptz NOT NULL DEFAULT now(),
    updated      timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX execution_admission_entry_line_idx ON execution_admission_entry (state_id, status, queue_order);

-- ---------------------------------------------------------------- what is written down about every change

CREATE TABLE execution_history (
    time           timestamptz NOT NULL DEFAULT now(),
    operation      text NOT NULL,
    entity_id      bigint NOT NULL,
    entity_ref     text,
    changed_fields text[] NOT NULL DEFAULT '{}',
    old_values     jsonb,
    new_values     jsonb
);
CREATE INDEX execution_history_entity_idx ON execution_history (entity_id, time DESC);

CREATE TABLE worker_history (
    time           timestamptz NOT NULL DEFAULT now(),
    operation      text NOT NULL,
    entity_id      bigint NOT NULL,
    entity_ref     text,
    changed_fields text[] NOT NULL DEFAULT '{}',
    old_values     jsonb,
    new_values     jsonb
);
CREATE INDEX worker_history_entity_idx ON worker_history (entity_id, time DESC);

CREATE TABLE audit_event (
    id          bigserial,
    occurred_at timestamptz NOT NULL DEFAULT now(),
    category    audit_category NOT NULL,
    event_type  text NOT NULL,
    outcome     audit_outcome NOT NULL,
    entity_type text,
    entity_id   bigint,
    entity_ref  text,
    details     jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX audit_event_entity_idx ON audit_event (entity_type, entity_id, occurred_at DESC);

CREATE TABLE notification (
    id          bigserial PRIMARY KEY,
    channel     text NOT NULL,
    entity_type text NOT NULL,
    entity      text NOT NULL,
    activity    text NOT NULL,
    state       notification_status NOT NULL DEFAULT 'created',
    content     jsonb,
    created     timestamptz NOT NULL DEFAULT now(),
    updated     timestamptz NOT NULL DEFAULT now()
);
