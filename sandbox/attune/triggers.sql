-- Stock Attune's triggers: every change of an execution notifies, and leaves a history and an audit row, in the
-- transaction that made it. Run after schema.sql, under the same search_path.

-- ---------------------------------------------------------------- NOTIFY

-- Carries workflow_task whole: beyond 8000 bytes pg_notify raises 22023 and the INSERT or UPDATE itself fails.
CREATE FUNCTION execution_payload(e execution) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE
    origin enforcement;
BEGIN
    IF e.enforcement IS NOT NULL THEN
        SELECT * INTO origin FROM enforcement WHERE id = e.enforcement;
    END IF;
    RETURN jsonb_build_object(
        'entity_type', 'execution', 'entity_id', e.id, 'id', e.id,
        'action_id', e.action, 'action_ref', e.action_ref, 'status', e.status,
        'enforcement', e.enforcement, 'rule_ref', origin.rule_ref, 'trigger_ref', origin.trigger_ref,
        'parent', e.parent, 'started_at', e.started_at, 'workflow_task', e.workflow_task,
        'created', e.created, 'updated', e.updated);
END $$;

CREATE FUNCTION notify_execution_created() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('execution_created', execution_payload(NEW)::text);
    RETURN NULL;
END $$;

CREATE FUNCTION notify_execution_status_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('execution_status_changed',
                      (execution_payload(NEW) || jsonb_build_object('old_status', OLD.status))::text);
    RETURN NULL;
END $$;

CREATE FUNCTION notify_workflow_execution_status_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('workflow_execution_status_changed', jsonb_build_object(
        'entity_type', 'execution', 'entity_id', NEW.id, 'workflow_def', NEW.workflow_def,
        'status', NEW.status, 'old_status', OLD.status)::text);
    RETURN NULL;
END $$;

CREATE FUNCTION notify_notification() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify(NEW.channel, jsonb_build_object(
        'id', NEW.id, 'entity_type', NEW.entity_type, 'entity', NEW.entity, 'activity', NEW.activity)::text);
    RETURN NULL;
END $$;

-- ---------------------------------------------------------------- history and audit

-- A result may have megabytes, so the history has no more of it than this.
CREATE FUNCTION digest_of(value jsonb) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN value IS NOT NULL THEN jsonb_build_object(
        'size', octet_length(value::text), 'type', jsonb_typeof(value), 'digest', 'md5:' || md5(value::text)) END
$$;

-- An INSERT or DELETE is recorded with what identifies the row, an UPDATE with the fields that changed, before and
-- after. `updated` moves with every change, so it is not one of them. Written out field by field because it runs for
-- every row of every batch: a generic comparison by to_jsonb made updates three times slower.
CREATE FUNCTION record_execution_history() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    before jsonb := '{}';
    after  jsonb := '{}';
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO execution_history (operation, entity_id, entity_ref, new_values)
        VALUES (TG_OP, NEW.id, NEW.action_ref, jsonb_build_object('status', NEW.status, 'worker', NEW.worker));
        RETURN NULL;
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO execution_history (operation, entity_id, entity_ref, old_values)
        VALUES (TG_OP, OLD.id, OLD.action_ref, jsonb_build_object('status', OLD.status, 'worker', OLD.worker));
        RETURN NULL;
    END IF;
    IF NEW.status IS DISTINCT FROM OLD.status THEN
        before := jsonb_build_object('status', OLD.status);
        after := jsonb_build_object('status', NEW.status);
    END IF;
    IF NEW.result IS DISTINCT FROM OLD.result THEN
        before := before || jsonb_build_object('result', digest_of(OLD.result));
        after := after || jsonb_build_object('result', digest_of(NEW.result));
    END IF;
    IF NEW.worker IS DISTINCT FROM OLD.worker THEN
        before := before || jsonb_build_object('worker', OLD.worker);
        after := after || jsonb_build_object('worker', NEW.worker);
    END IF;
    IF NEW.executor IS DISTINCT FROM OLD.executor THEN
        before := before || jsonb_build_object('executor', OLD.executor);
        after := after || jsonb_build_object('executor', NEW.executor);
    END IF;
    IF NEW.started_at IS DISTINCT FROM OLD.started_at THEN
        before := before || jsonb_build_object('started_at', OLD.started_at);
        after := after || jsonb_build_object('started_at', NEW.started_at);
    END IF;
    IF NEW.workflow_task IS DISTINCT FROM OLD.workflow_task THEN
        before := before || jsonb_build_object('workflow_task', OLD.workflow_task);
        after := after || jsonb_build_object('workflow_task', NEW.workflow_task);
    END IF;
    IF after <> '{}' THEN
        INSERT INTO execution_history (operation, entity_id, entity_ref, changed_fields, old_values, new_values)
        VALUES (TG_OP, NEW.id, NEW.action_ref, ARRAY(SELECT jsonb_object_keys(after)), before, after);
    END IF;
    RETURN NULL;
END $$;

-- Neither last_heartbeat nor updated counts: a heartbeat alone leaves no history.
CREATE FUNCTION record_worker_history() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    before  jsonb := CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) - '{last_heartbeat,updated}'::text[] END;
    after   jsonb := CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) - '{last_heartbeat,updated}'::text[] END;
    changed text[];
BEGIN
    changed := ARRAY(SELECT key FROM jsonb_object_keys(coalesce(after, before)) AS key
                      WHERE before -> key IS DISTINCT FROM after -> key);
    IF changed <> '{}' THEN
        INSERT INTO worker_history (operation, entity_id, entity_ref, changed_fields, old_values, new_values)
        VALUES (TG_OP, coalesce(NEW.id, OLD.id), coalesce(NEW.name, OLD.name), changed, before, after);
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION record_execution_audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.status = OLD.status THEN
        RETURN NULL;
    END IF;
    INSERT INTO audit_event (category, event_type, outcome, entity_type, entity_id, entity_ref, details)
    VALUES ('execution', 'execution.' || NEW.status,
            CASE WHEN NEW.status IN ('failed', 'timeout', 'abandoned') THEN 'failure' ELSE 'success' END::audit_outcome,
            'execution', NEW.id, NEW.action_ref,
            CASE WHEN TG_OP = 'UPDATE' THEN jsonb_build_object('old_status', OLD.status) ELSE '{}' END);
    RETURN NULL;
END $$;

-- ---------------------------------------------------------------- wiring

-- Whatever has `updated` moves it with every change.
DO $$
DECLARE
    moving text;
BEGIN
    FOR moving IN SELECT relname FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
                   WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND attname = 'updated'
    LOOP
        EXECUTE format('CREATE TRIGGER %I BEFORE UPDATE ON %I FOR EACH ROW EXECUTE FUNCTION set_updated()',
                       moving || '_set_updated', moving);
    END LOOP;
END $$;
CREATE TRIGGER execution_notify_created AFTER INSERT ON execution
    FOR EACH ROW EXECUTE FUNCTION notify_execution_created();
CREATE TRIGGER execution_notify_status_changed AFTER UPDATE ON execution
    FOR EACH ROW WHEN (NEW.status IS DISTINCT FROM OLD.status)
    EXECUTE FUNCTION notify_execution_status_changed();
CREATE TRIGGER execution_notify_workflow_status_changed AFTER UPDATE ON execution
    FOR EACH ROW WHEN (NEW.status IS DISTINCT FROM OLD.status AND NEW.workflow_def IS NOT NULL)
    EXECUTE FUNCTION notify_workflow_execution_status_changed();
CREATE TRIGGER execution_record_history AFTER INSERT OR UPDATE OR DELETE ON execution
    FOR EACH ROW EXECUTE FUNCTION record_execution_history();
CREATE TRIGGER execution_record_audit AFTER INSERT OR UPDATE OF status ON execution
    FOR EACH ROW EXECUTE FUNCTION record_execution_audit();
CREATE TRIGGER worker_record_history AFTER INSERT OR UPDATE OR DELETE ON worker
    FOR EACH ROW EXECUTE FUNCTION record_worker_history();
CREATE TRIGGER notification_notify AFTER INSERT ON notification
    FOR EACH ROW EXECUTE FUNCTION notify_notification();
