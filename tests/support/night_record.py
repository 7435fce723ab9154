"""What was seen and done in the night, put on record: who was there, when nobody looked, the diagnoses, the audit."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

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
from tests.support.views import a_view, a_worker


async def remember(store: Database, now: datetime, workers: Mapping[int, str]) -> None:
    """What the leader and the replicas saw all day: who was there, when nobody looked, who did what."""
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
            gaps=list(night.BLIND_MINUTES),
        )
        await _changes(tx, now, workers)
        await _events(tx, now)
        await _diagnoses(tx, now)
        await _operations(tx, now)


async def _changes(tx: Transaction, now: datetime, workers: Mapping[int, str]) -> None:
    gone = night.gone_at(now)
    changes = [(worker_id, now - timedelta(hours=30), "available") for worker_id in workers]
    changes += [
        (night.PYTHON, gone + night.LATE_AFTER, "late"),
        (night.PYTHON, gone + night.UNAVAILABLE_AFTER, "unavailable"),
        (night.NODE, now - night.NODE_GONE, "unavailable"),
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
    gone, gaps = night.gone_at(now), night.BLIND_MINUTES
    python, node = night.WORKERS[night.PYTHON], night.WORKERS[night.NODE]
    # Of seeding, and dated by it.
    await tx.run("DELETE FROM own.history_event")
    for at, topic, kind, subject in (
        (now - night.NODE_GONE, Topic.WORKERS, WORKER_UNAVAILABLE, node),
        (now - night.NODE_BACK, Topic.WORKERS, WORKER_AVAILABLE, node),
        (now - timedelta(minutes=gaps.stop - 1), Topic.REPLICA, REPLICA_STOPPED, night.INSTANCE),
        (now - timedelta(minutes=gaps.start - 1), Topic.REPLICA, REPLICA_STARTED, night.INSTANCE),
        (gone + night.LATE_AFTER, Topic.WORKERS, WORKER_LATE, python),
        (gone + night.UNAVAILABLE_AFTER, Topic.WORKERS, WORKER_UNAVAILABLE, python),
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
    """All was well until the worker had been silent for long enough, and since then it has been gone."""
    shell = a_worker(name=night.WORKERS[night.SHELL], number=night.SHELL)
    node = a_worker(name=night.WORKERS[night.NODE], number=night.NODE)
    await record_change(tx, diagnose(a_view(workers=(shell, node))), at=now - timedelta(hours=30))
    for minutes, ended in ((2, 0), (20, 378)):
        gone = a_worker(
            name=night.WORKERS[night.PYTHON],
            number=night.PYTHON,
            silent_seconds=60.0 * minutes + 400,
            queue=QueueObservation(consumers=0, ready=night.WAITING, unacked=0),
            ended_last_hour=ended,
            scheduled=night.WAITING,
        )
        found = diagnose(a_view(workers=(gone, shell, node)))
        since = night.gone_at(now)
        await record_change(
            tx,
            [replace(one, since=since) if one.health is Health.PROBLEM else one for one in found],
            at=since + timedelta(minutes=minutes),
        )


async def _operations(tx: Transaction, now: datetime) -> None:
    for minutes, username, client, action, target, comment, result in (
        (
            610,
            "ada",
            "browser",
            "brake.release",
            None,
            "worker-node is being redeployed",
            "no limit for 10 min",
        ),
        (
            470,
            "deploy@ops-1",
            "cli",
            "letters.reprocess",
            "12 letters",
            "rows were locked by a migration",
            "12 failed",
        ),
        (21, "grace", "browser", "letter.body_read", "letter 12", None, "shown"),
    ):
        await tx.run(
            """
            INSERT INTO own.operation (at, username, client, action, target, comment, result)
            VALUES (:at, :username, :client, :action, :target, :comment, :result)
            """,
            at=now - timedelta(minutes=minutes),
            username=username,
            client=client,
            action=action,
            target=target,
            comment=comment,
            result=result,
        )
