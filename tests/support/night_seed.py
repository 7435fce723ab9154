"""Write the night into a database as the sidecar would have: dead letters are decided by the real function and counted
by the real statements. Afterwards they are moved back to their time, because every statement uses the server's clock.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby

from dlq_handler.database.engine import Database
from tests.support import night
from tests.support.deciding import letter_ender
from tests.support.night import Fallen
from tests.support.night_record import remember

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
                beat=night.gone_at(now),
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
