"""Write the night into a database as the sidecar would have: dead letters are decided by the real function and counted
by the real statements. Afterwards they are moved back to their time, because every statement uses the server's clock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import groupby

from dlq_handler.database.engine import Database
from dlq_handler.database.transaction import Transaction
from dlq_handler.diagnosis.diagnose import diagnose
from dlq_handler.diagnosis.diagnoses_sql import record_change
from dlq_handler.diagnosis.diagnosis import Health
from dlq_handler.history.event import (
    REPLICA_STARTED,
    REPLICA_STOPPED,
    WORKER_AVAILABLE,
    WORKER_LATE,
    WORKER_UNAVAILABLE,
    Topic,
)
from dlq_handler.host.worker import QueueObservation
from tests.support import night
from tests.support.deciding import letter_ender
from tests.support.night import Fallen
from tests.support.views import a_view, a_worker


async def remember(store: Database, now: datetime, workers: Mapping[int, str]) -> None:
    """Write what the replicas would have recorded all day: availability of workers, gaps, operations."""
    async with store.transaction() as tx:
        # Ended at once, they would be far more than the brake allows in a minute.
        await tx.run("DELETE FROM own.change_count")
        await tx.run("DELETE FROM own.letter_minute")
        await tx.run(
            """
            INSERT INTO own.letter_minute (minute, group_id, letters, failed, last_at, last_id)
            SELECT date_trunc('minute', received_at), group_id, count(*), count(*) FILTER (WHERE outcome = 'failed'),
                   max(received_at), max(id)
              FROM own.letter WHERE group_id IS NOT NULL GROUP BY 1, 2
            """
        )
        await tx.run(
            """
            UPDATE own.letter_group g SET first_at = seen.first_at, last_at = seen.last_at
              FROM (SELECT group_id, min(received_at) AS first_at, max(received_at) AS last_at
                      FROM own.letter GROUP BY group_id) AS seen WHERE seen.group_id = g.id
            """
        )
        await tx.run(
            """
            INSERT INTO own.observed_minute (topic, minute)
            SELECT topic, CAST(:now AS timestamptz) - make_interval(mins => n)
              FROM unnest(ARRAY['letters', 'workers']) AS topic, generate_series(0, 1439) AS n
             WHERE NOT n = ANY (CAST(:gaps AS integer[]))
            ON CONFLICT DO NOTHING
            """,
            now=now,
            gaps=list(night.GAP_MINUTES),
        )
        await _changes(tx, now, workers)
        await _events(tx, now)
        await _diagnoses(tx, now)
        await _operations(tx, now)


async def _changes(tx: Transaction, now: datetime, workers: Mapping[int, str]) -> None:
    last_heartbeat = night.last_heartbeat_at(now)
    changes = [(worker_id, now - timedelta(hours=30), "available") for worker_id in workers]
    changes += [
        (night.PYTHON, last_heartbeat + night.LATE_AFTER, "late"),
        (night.PYTHON, last_heartbeat + night.UNAVAILABLE_AFTER, "unavailable"),
        (night.NODE, now - night.NODE_LOST, "unavailable"),
        (night.NODE, now - night.NODE_BACK, "available"),
    ]
    for worker_id, at, availability in changes:
        await tx.run(
            """
            INSERT INTO own.worker_change (worker_id, at, name, availability)
            VALUES (:worker_id, :at, :name, :availability)
            """,
            worker_id=worker_id,
            at=at,
            name=workers[worker_id],
            availability=availability,
        )


async def _events(tx: Transaction, now: datetime) -> None:
    last_heartbeat, gaps = night.last_heartbeat_at(now), night.GAP_MINUTES
    python, node = night.WORKERS[night.PYTHON], night.WORKERS[night.NODE]
    # Of seeding, and dated by it.
    await tx.run("DELETE FROM own.history_event")
    for at, topic, kind, subject in (
        (now - night.NODE_LOST, Topic.WORKERS, WORKER_UNAVAILABLE, node),
        (now - night.NODE_BACK, Topic.WORKERS, WORKER_AVAILABLE, node),
        (now - timedelta(minutes=gaps.stop - 1), Topic.REPLICA, REPLICA_STOPPED, night.INSTANCE),
        (now - timedelta(minutes=gaps.start - 1), Topic.REPLICA, REPLICA_STARTED, night.INSTANCE),
        (last_heartbeat + night.LATE_AFTER, Topic.WORKERS, WORKER_LATE, python),
        (last_heartbeat + night.UNAVAILABLE_AFTER, Topic.WORKERS, WORKER_UNAVAILABLE, python),
    ):
        await tx.run(
            """
            INSERT INTO own.history_event (at, topic, kind, subject, replica)
            VALUES (:at, :topic, :kind, :subject, :replica)
            """,
            at=at,
            topic=topic,
            kind=kind,
            subject=subject,
            replica=night.INSTANCE,
        )


async def _diagnoses(tx: Transaction, now: datetime) -> None:
    """All was well until the worker became unavailable."""
    shell = a_worker(name=night.WORKERS[night.SHELL], number=night.SHELL)
    node = a_worker(name=night.WORKERS[night.NODE], number=night.NODE)
    await record_change(tx, diagnose(a_view(workers=(shell, node))), at=now - timedelta(hours=30))
    for minutes, ended in ((2, 0), (20, 378)):
        last_heartbeat = a_worker(
            name=night.WORKERS[night.PYTHON],
            number=night.PYTHON,
            silent_seconds=60.0 * minutes + 400,
            queue=QueueObservation(consumers=0, ready=night.WAITING, unacked=0),
            ended_last_hour=ended,
            scheduled=night.WAITING,
        )
        found = diagnose(a_view(workers=(last_heartbeat, shell, node)))
        since = night.last_heartbeat_at(now)
        await record_change(
            tx,
            [replace(one, since=since) if one.health is Health.PROBLEM else one for one in found],
            at=since + timedelta(minutes=minutes),
        )


async def _operations(tx: Transaction, now: datetime) -> None:
    for minutes, username, client, action, letter_ids, comment, result in (
        (
            610,
            "ada",
            "browser",
            "brake.release",
            [],
            "worker-node is being redeployed",
            "no limit for 10 min",
        ),
        (
            470,
            "deploy@ops-1",
            "cli",
            "letters.reprocess",
            list(range(1, 13)),
            "rows were locked by a migration",
            "12 failed",
        ),
        (21, "grace", "browser", "letter.body_read", [12], None, "shown"),
    ):
        await tx.run(
            """
            INSERT INTO own.operation (at, username, client, action, letter_ids, comment, result)
            VALUES (:at, :username, :client, :action, :letter_ids, :comment, :result)
            """,
            at=now - timedelta(minutes=minutes),
            username=username,
            client=client,
            action=action,
            letter_ids=letter_ids,
            comment=comment,
            result=result,
        )


DECIDED_AFTER = timedelta(milliseconds=180)
ANNOUNCED_AFTER = timedelta(milliseconds=210)


async def seed_night(store: Database, *, is_hostile: bool = False) -> datetime:
    """Returns the `now` of the night: the database's, to the minute."""
    async with store.transaction() as tx:
        row = await tx.row("SELECT date_trunc('minute', now()) AS now")
    assert row is not None
    now: datetime = row.now
    fallen = night.the_night(now)
    workers = dict(night.WORKERS)
    if is_hostile:
        fallen += night.hostile(now, len(fallen))
        workers[night.HOSTILE_WORKER] = night.HOSTILE_NAME
    await _register(store, workers, now)
    await _schedule(store, fallen)
    decide = letter_ender(store, replica=night.INSTANCE)
    for _, minute in groupby(fallen, key=lambda one: one.died_at.replace(second=0)):
        some = list(minute)
        await decide.commit([one.letter for one in some])
        await _move_back(store, some)
    await remember(store, now, workers)
    return now


async def _register(store: Database, workers: Mapping[int, str], now: datetime) -> None:
    async with store.transaction() as tx:
        for worker_id, name in workers.items():
            await tx.run(
                """
                INSERT INTO worker (id, name, worker_type, worker_role, host, status, last_heartbeat, created)
                VALUES (:id, :name, 'local', 'action', :host, 'active', :beat, :beat)
                """,
                id=worker_id,
                name=name,
                host=night.HOSTS.get(worker_id, "js-2"),
                beat=night.last_heartbeat_at(now),
            )
        await tx.run("SELECT setval('worker_id_seq', 20)")
        # Retention deleted the letters of the days before.
        await tx.run("SELECT setval('own.letter_id_seq', :last)", last=night.LAST_DELETED_LETTER)


async def _schedule(store: Database, fallen: Sequence[Fallen]) -> None:
    """The rows as they were when their messages died, with the history that the host's triggers would have written."""
    known = [one for one in fallen if one.execution_id is not None]
    async with store.transaction() as tx:
        await tx.run("SET LOCAL session_replication_role = replica")
        given = {
            "id": [one.execution_id for one in known],
            "worker": [one.worker_id for one in known],
            "action": [one.action_ref for one in known],
            "status": ["cancelled" if one.is_over else "scheduled" for one in known],
            "at": [one.scheduled_at for one in known],
        }
        await tx.run(
            """
            INSERT INTO execution (id, worker, action_ref, status, created, updated)
            SELECT id, worker, action, CAST(status AS execution_status), at - interval '1.4 seconds', at
              FROM unnest(CAST(:id AS bigint[]), CAST(:worker AS bigint[]), CAST(:action AS text[]),
                          CAST(:status AS text[]), CAST(:at AS timestamptz[])) AS given(id, worker, action, status, at)
            """,
            **given,
        )
        await tx.run(
            """
            INSERT INTO execution_history (time, operation, entity_id, old_values, new_values)
            SELECT created + step.after, step.operation, id,
                   jsonb_build_object('status', step.before),
                   jsonb_build_object('status', step.status, 'worker', worker)
              FROM execution, (VALUES (interval '0', 'INSERT', NULL, 'requested'),
                                      (interval '0.9 seconds', 'UPDATE', 'requested', 'scheduling'),
                                      (interval '1.4 seconds', 'UPDATE', 'scheduling', 'scheduled'))
                              AS step(after, operation, before, status)
            """
        )
        await tx.run("SELECT setval('execution_id_seq', (SELECT max(id) FROM execution) + 100)")


async def _move_back(store: Database, some: Sequence[Fallen]) -> None:
    """What the decide has just written happened when these letters died."""
    async with store.transaction() as tx:
        await tx.run("SET LOCAL session_replication_role = replica")
        await tx.run(
            """
            UPDATE own.letter l SET received_at = given.at, decided_at = given.at
              FROM unnest(CAST(:key AS text[]), CAST(:at AS timestamptz[])) AS given(key, at) WHERE l.key = given.key
            """,
            key=[one.letter.key for one in some],
            at=[one.died_at + DECIDED_AFTER for one in some],
        )
        known = [one for one in some if one.execution_id is not None]
        times = {
            "id": [one.execution_id for one in known],
            "at": [one.died_at + DECIDED_AFTER for one in known],
        }
        for statement in _MOVES:
            await tx.run(
                statement.format(
                    given="unnest(CAST(:id AS bigint[]), CAST(:at AS timestamptz[])) AS given(id, at)"
                ),
                **times,
            )


_MOVES = (
    "UPDATE execution e SET updated = given.at FROM {given} WHERE e.id = given.id AND e.status = 'failed'",
    """
    UPDATE execution_history h SET time = given.at FROM {given}
     WHERE h.entity_id = given.id AND h.new_values ->> 'status' = 'failed'
    """,
    f"""
    UPDATE own.outbox o SET created_at = given.at, attempts = 1,
           confirmed_at = given.at + interval '{ANNOUNCED_AFTER.total_seconds()} seconds'
      FROM {{given}} WHERE o.execution_id = given.id
    """,
)
