"""The records of flows.

Each write names the version that it was decided on, and writes nothing over another one: the leader and the wishes of
operators never undo each other. `queues` holds what the blueprint had become when the flow was started, so that a
changed blueprint changes no flow.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Row

from dlq_handler.database.engine import Database
from dlq_handler.database.postgres_values import as_jsonb
from dlq_handler.database.transaction import Transaction
from dlq_handler.lifecycle.flow import Flow, FlowKind, FlowStatus, StopStep
from dlq_handler.lifecycle.flow_blueprint import FlowQueue
from dlq_handler.lifecycle.next_step import REBIND_SECONDS
from dlq_handler.text import storable

# It must never change: replicas of all versions use it.
_LOCK_CLASS = 1_145_852_236

_COLUMNS = (
    "id, kind, blueprint, params, status, step, version, worker_id, queues, made, has_cordoned, idle_heartbeat,"
    " is_retired_bound, since, step_since, rerouted_at, aborted_at, delete_attempts, next_attempt_at, leaked, archived,"
    " archived_beyond_limit, wanted_by, comment, last_error, last_lease"
)


async def take_turn(tx: Transaction) -> None:
    """Wait for other transactions that add flows: each must see the queues of the others."""
    await tx.run(
        "SELECT pg_advisory_xact_lock(:lock_class, hashtext(:schema))",
        lock_class=_LOCK_CLASS,
        schema=tx.own_schema,
    )


async def read_flow(tx: Transaction, flow_id: str) -> Flow | None:
    row = await tx.row(f"SELECT {_COLUMNS} FROM own.flow WHERE id = :id", id=storable(flow_id))  # noqa: S608  # constant
    return None if row is None else _flow(row)


async def lock_flow(tx: Transaction, flow: Flow) -> bool:
    """Hold this record until the transaction ends. False: it has changed since it was read, or is gone."""
    row = await tx.row(
        "SELECT id FROM own.flow WHERE id = :id AND version = :version FOR UPDATE",
        id=flow.id,
        version=flow.version,
    )
    return row is not None


async def list_flows(database: Database, *, kind: FlowKind | None = None) -> list[Flow]:
    """All of them, by id."""
    async with database.transaction() as tx:
        rows = await tx.rows(
            f"""
            SELECT {_COLUMNS} FROM own.flow
             WHERE CAST(:kind AS text) IS NULL OR kind = :kind ORDER BY id
            """,  # noqa: S608  # constant
            kind=kind,
        )
    return [_flow(row) for row in rows]


async def due_live(tx: Transaction) -> list[Flow]:
    """Flows that start or stop, and those whose stop was aborted lately."""
    rows = await tx.rows(
        f"""
        SELECT {_COLUMNS} FROM own.flow
         WHERE status IN ('starting', 'stopping')
            OR (status = 'active' AND aborted_at > clock_timestamp() - make_interval(secs => :kept))
         ORDER BY since, id
        """,  # noqa: S608  # constant
        kept=REBIND_SECONDS,
    )
    return [_flow(row) for row in rows]


async def claims(
    tx: Transaction, names: Collection[str], *, topics: Collection[str] = (), besides: str | None = None
) -> dict[str, str]:
    """Which of these queues and topics another live flow has, each with the id of that flow.

    A queue that is shared counts too. A topic is `exchange:key`, as in `FlowQueue.own_topics`.
    """
    rows = await tx.rows(
        """
        SELECT claim.name, min(claim.id) AS id FROM (
            SELECT f.id, q ->> 'name' AS name, CAST(:names AS text[]) AS asked
              FROM own.flow f, jsonb_array_elements((f.queues -> 'flow') || (f.queues -> 'shared')) AS q
             WHERE f.status <> 'stopped'
            UNION ALL
            SELECT f.id, (q ->> 'exchange') || ':' || key, CAST(:topics AS text[])
              FROM own.flow f, jsonb_array_elements(f.queues -> 'flow') AS q,
                   jsonb_array_elements_text(q -> 'own_keys') AS key
             WHERE f.status <> 'stopped') AS claim
         WHERE claim.name = ANY (claim.asked) AND claim.id IS DISTINCT FROM CAST(:besides AS text)
         GROUP BY claim.name
        """,
        names=list(names),
        topics=list(topics),
        besides=besides,
    )
    return {row.name: row.id for row in rows}


async def retired_workers(tx: Transaction) -> frozenset[int]:
    """The workers of stopped flows whose keys lead to the retired queue. There may be thousands."""
    [row] = await tx.rows(
        """
        SELECT coalesce(array_agg(worker_id), '{}') AS ids FROM own.flow
         WHERE status = 'stopped' AND is_retired_bound AND worker_id IS NOT NULL
        """
    )
    return frozenset(row.ids)


async def due_stopped(tx: Transaction, *, returned: Collection[int], gone: Collection[int]) -> list[Flow]:
    """Stopped flows that need the leader. `returned`: workers that are back; `gone`: workers whose row was deleted."""
    rows = await tx.rows(
        f"""
        SELECT {_COLUMNS} FROM own.flow
         WHERE status = 'stopped'
           AND ((is_retired_bound AND worker_id = ANY (CAST(:returned AS bigint[])))
                OR (is_retired_bound AND (worker_id IS NULL OR worker_id = ANY (CAST(:gone AS bigint[])))
                    AND since < clock_timestamp() - make_interval(secs => :kept))
                OR (leaked <> '[]' AND coalesce(next_attempt_at <= clock_timestamp(), true))
                OR aborted_at > clock_timestamp() - make_interval(secs => :kept))
         ORDER BY id
        """,  # noqa: S608  # constant
        returned=sorted(returned),
        gone=sorted(gone),
        kept=REBIND_SECONDS,
    )
    return [_flow(row) for row in rows]


async def bound_flows(tx: Transaction) -> list[Flow]:
    """Flows whose bindings a new leader makes again, in case the broker has lost them."""
    rows = await tx.rows(
        f"SELECT {_COLUMNS} FROM own.flow WHERE status = 'active' OR is_retired_bound ORDER BY id"  # noqa: S608  # constant
    )
    return [_flow(row) for row in rows]


async def add(tx: Transaction, flow: Flow) -> Flow | None:
    """In place of a stopped flow of this id. Returns it with its version; None: a live one has the id."""
    row = await tx.row(
        f"""
        INSERT INTO own.flow AS known ({_COLUMNS})
        VALUES (:id, :kind, :blueprint, CAST(:params AS jsonb), :status, :step, :version, :worker_id,
                CAST(:queues AS jsonb), CAST(:made AS jsonb), :has_cordoned, :idle_heartbeat, :is_retired_bound,
                :since, :step_since, :rerouted_at, :aborted_at, :delete_attempts, :next_attempt_at,
                CAST(:leaked AS jsonb), :archived, :archived_beyond_limit, :wanted_by, :comment, :last_error,
                :last_lease)
        ON CONFLICT (id) DO UPDATE SET
            kind = excluded.kind, blueprint = excluded.blueprint, params = excluded.params,
            worker_id = excluded.worker_id, queues = excluded.queues, version = known.version + 1, {_ASSIGNED}
         WHERE known.status = 'stopped'
        RETURNING version
        """,  # noqa: S608  # constant
        kind=flow.kind,
        blueprint=flow.blueprint,
        params=as_jsonb(dict(flow.params)),
        worker_id=flow.worker_id,
        queues=_queues(flow),
        **_changing(flow),
    )
    return None if row is None else replace(flow, version=row.version)


_ASSIGNED = ", ".join(
    f"{name} = excluded.{name}"
    for name in (
        "status",
        "step",
        "made",
        "has_cordoned",
        "idle_heartbeat",
        "is_retired_bound",
        "since",
        "step_since",
        "rerouted_at",
        "aborted_at",
        "delete_attempts",
        "next_attempt_at",
        "leaked",
        "archived",
        "archived_beyond_limit",
        "wanted_by",
        "comment",
        "last_error",
        "last_lease",
    )
)


async def save(tx: Transaction, flow: Flow) -> bool:
    """Write it over the version that `flow` has. False: nothing was written, because the record has changed since."""
    row = await tx.row(
        """
        UPDATE own.flow
           SET status = :status, step = :step, version = version + 1, made = CAST(:made AS jsonb),
               queues = CAST(:queues AS jsonb), has_cordoned = :has_cordoned, idle_heartbeat = :idle_heartbeat,
               is_retired_bound = :is_retired_bound, since = :since, step_since = :step_since,
               rerouted_at = :rerouted_at, aborted_at = :aborted_at, delete_attempts = :delete_attempts,
               next_attempt_at = :next_attempt_at, leaked = CAST(:leaked AS jsonb), archived = :archived,
               archived_beyond_limit = :archived_beyond_limit, wanted_by = :wanted_by, comment = :comment,
               last_error = :last_error, last_lease = :last_lease
         WHERE id = :id AND version = :version RETURNING version
        """,
        queues=_queues(flow),
        **_changing(flow),
    )
    return row is not None


async def delete_stopped(database: Database, *, older_than_seconds: float) -> int:
    """Records of stops that are complete: no key leads to the retired queue, and no queue has leaked."""
    async with database.transaction() as tx:
        result = await tx.run(
            """
            DELETE FROM own.flow
             WHERE status = 'stopped' AND NOT is_retired_bound AND leaked = '[]'
               AND since < now() - make_interval(secs => :age)
            """,
            age=float(older_than_seconds),
        )
    return result.rowcount


def _changing(flow: Flow) -> dict[str, object]:
    return {
        "id": storable(flow.id),
        "status": flow.status,
        "step": flow.step,
        "version": flow.version,
        "made": _names(flow.made),
        "has_cordoned": flow.has_cordoned,
        "idle_heartbeat": flow.idle_heartbeat,
        "is_retired_bound": flow.is_retired_bound,
        "since": flow.since,
        "step_since": flow.step_since,
        "rerouted_at": flow.rerouted_at,
        "aborted_at": flow.aborted_at,
        "delete_attempts": flow.delete_attempts,
        "next_attempt_at": flow.next_attempt_at,
        "leaked": _names(flow.leaked),
        "archived": flow.archived,
        "archived_beyond_limit": flow.archived_beyond_limit,
        "wanted_by": storable(flow.wanted_by),
        "comment": None if flow.comment is None else storable(flow.comment),
        "last_error": None if flow.last_error is None else storable(flow.last_error),
        "last_lease": flow.last_lease,
    }


def _names(names: Iterable[str]) -> str:
    return json.dumps(list(names))


def _queues(flow: Flow) -> str:
    return as_jsonb(
        {
            "flow": [queue.as_json() for queue in flow.queues],
            "shared": [queue.as_json() for queue in flow.shared],
        }
    )


def _flow(row: Row[Any]) -> Flow:
    queues: Mapping[str, list[dict[str, object]]] = row.queues
    fields = row._asdict() | {
        "params": row.params,
        "kind": FlowKind(row.kind),
        "status": FlowStatus(row.status),
        "step": None if row.step is None else StopStep(row.step),
        "queues": tuple(FlowQueue.from_json(queue) for queue in queues["flow"]),
        "shared": tuple(FlowQueue.from_json(queue) for queue in queues.get("shared", ())),
        "made": tuple(row.made),
        "leaked": tuple(row.leaked),
    }
    return Flow(**fields)
