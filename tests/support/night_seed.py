"""Write the night into a database, as the sidecar would have written it: letters are judged by the real judge, counted
by the real statements, and moved back to their time afterwards, because every statement dates by the server's clock.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby

from dlq_handler.domain.happening import (
    SIDECAR_STARTED,
    SIDECAR_STOPPED,
    WORKER_BACK,
    WORKER_GONE,
    WORKER_LATE,
    Part,
)
from dlq_handler.store.engine import Database
from dlq_handler.store.transaction import Transaction
from tests.support import night
from tests.support.judging import a_judge
from tests.support.night import Fallen

INSTANCE = "sidecar-1"
JUDGED_AFTER = timedelta(milliseconds=180)
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
    judge = a_judge(store, instance=INSTANCE)
    for _, minute in groupby(fallen, key=lambda one: one.died_at.replace(second=0)):
        some = list(minute)
        await judge.commit([one.letter for one in some])
        await _move_back(store, some)
    await _remember(store, now, workers)
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
                beat=_gone_at(now),
            )
        await tx.run("SELECT setval('worker_id_seq', 20)")
        # The letters of the days before have had their time.
        await tx.run("SELECT setval('own.letter_id_seq', :last)", last=night.LAST_SWEPT_LETTER)
        await tx.run(
            """
            INSERT INTO own.swept (hour, at, ids)
            SELECT date_trunc('hour', at), at, int8multirange(int8range(1, :last, '[]'))
              FROM (SELECT CAST(:now AS timestamptz) - interval '3 hours' AS at) AS sweep
            """,
            now=now,
            last=night.LAST_SWEPT_LETTER,
        )


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
    """What the judge has just written happened when these letters died."""
    async with store.transaction() as tx:
        await tx.run("SET LOCAL session_replication_role = replica")
        await tx.run(
            """
            UPDATE own.letter l SET received_at = given.at, judged_at = given.at
              FROM unnest(CAST(:key AS text[]), CAST(:at AS timestamptz[])) AS given(key, at) WHERE l.key = given.key
            """,
            key=[one.letter.key for one in some],
            at=[one.died_at + JUDGED_AFTER for one in some],
        )
        known = [one for one in some if one.execution_id is not None]
        times = {
            "id": [one.execution_id for one in known],
            "at": [one.died_at + JUDGED_AFTER for one in known],
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


async def _remember(store: Database, now: datetime, workers: Mapping[int, str]) -> None:
    """What the leader and the replicas saw all day: who was there, when nobody looked, who did what."""
    async with store.transaction() as tx:
        # Ended at once, they would be far more than the brake allows in a minute.
        await tx.run("DELETE FROM own.change_count")
        await tx.run("DELETE FROM own.letter_minute")
        await tx.run(
            """
            INSERT INTO own.letter_minute (minute, group_id, letters, failed, last_at)
            SELECT date_trunc('minute', received_at), group_id, count(*), count(*) FILTER (WHERE outcome = 'failed'),
                   max(received_at)
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
            INSERT INTO own.seen_minute (part, minute)
            SELECT part, CAST(:now AS timestamptz) - make_interval(mins => n)
              FROM unnest(ARRAY['letters', 'workers']) AS part, generate_series(0, 1439) AS n
             WHERE NOT n = ANY (CAST(:blind AS integer[]))
            ON CONFLICT DO NOTHING
            """,
            now=now,
            blind=list(night.BLIND_MINUTES),
        )
        await _changes(tx, now, workers)
        await _happenings(tx, now)
        await _operations(tx, now)


def _gone_at(now: datetime) -> datetime:
    return now - timedelta(minutes=night.GONE_MINUTES) + timedelta(seconds=4)


async def _changes(tx: Transaction, now: datetime, workers: Mapping[int, str]) -> None:
    gone = _gone_at(now)
    changes = [(worker_id, now - timedelta(hours=30), "available") for worker_id in workers]
    changes += [
        (night.PYTHON, gone + timedelta(seconds=30), "late"),
        (night.PYTHON, gone + timedelta(seconds=90), "unavailable"),
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


async def _happenings(tx: Transaction, now: datetime) -> None:
    gone, blind = _gone_at(now), night.BLIND_MINUTES
    python, node = night.WORKERS[night.PYTHON], night.WORKERS[night.NODE]
    # Of seeding, and dated by it.
    await tx.run("DELETE FROM own.happening")
    for at, part, kind, subject in (
        (now - night.NODE_GONE, Part.WORKERS, WORKER_GONE, node),
        (now - night.NODE_BACK, Part.WORKERS, WORKER_BACK, node),
        (now - timedelta(minutes=blind.stop - 1), Part.SIDECAR, SIDECAR_STOPPED, INSTANCE),
        (now - timedelta(minutes=blind.start - 1), Part.SIDECAR, SIDECAR_STARTED, INSTANCE),
        (gone + timedelta(seconds=30), Part.WORKERS, WORKER_LATE, python),
        (gone + timedelta(seconds=90), Part.WORKERS, WORKER_GONE, python),
    ):
        await tx.run(
            """
            INSERT INTO own.happening (at, part, kind, subject, instance)
            VALUES (:at, :part, :kind, :subject, :instance)
            """,
            at=at,
            part=part,
            kind=kind,
            subject=subject,
            instance=INSTANCE,
        )


async def _operations(tx: Transaction, now: datetime) -> None:
    for minutes, who, via, what, target, reason, result in (
        (610, "ada", "browser", "notify.mute", None, "worker-node is being redeployed", "muted for 2 h"),
        (488, "ada", "browser", "notify.unmute", None, "back, and the queue is empty", "unmuted"),
        (
            470,
            "deploy@ops-1",
            "cli",
            "letters.rejudge",
            "12 letters",
            "rows were locked by a migration",
            "12 failed",
        ),
        (21, "grace", "browser", "letter.body_read", "letter 12", None, "shown"),
    ):
        await tx.run(
            """
            INSERT INTO own.operation (at, who, via, what, target, reason, result)
            VALUES (:at, :who, :via, :what, :target, :reason, :result)
            """,
            at=now - timedelta(minutes=minutes),
            who=who,
            via=via,
            what=what,
            target=target,
            reason=reason,
            result=result,
        )
