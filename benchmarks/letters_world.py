"""Databases with many letters on record, as a bad day leaves them, for the benchmark of the pages.

Letters are written by one statement a part, with tiny bodies: that part is not measured. They are counted by group and
minute as the batch transaction counts them, and their ids follow their arrival.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from benchmarks.stale_world import stale_stage
from benchmarks.world import Stage, World
from dlq_handler.dead_letters.group import Category, GroupKey
from dlq_handler.dead_letters.letter import ParseProblem
from sandbox.attune.database import Session
from sandbox.attune.topology import worker_queue

INSERTED_AT_ONCE = 250_000
# Within what is kept, so that no scan is at work while pages are timed.
HOURS = 23

_LETTERS = """
INSERT INTO dlq_handler.letter (
    key, message_id, message_type, execution_id, worker_id, action_ref, queue, reason, death_count, died_at,
    first_death_queue, exchange, routing_key, body, body_size, outcome, explanation, received_at, decided_at, replica,
    group_id)
SELECT 'bench-' || n, 'bench-' || n, 'ExecutionRequested', n, 1 + n % 60, 'etl.load_' || n % 7, queues[place],
       reasons[place], 1, moment, queues[place], 'attune.dlx', 'execution.dispatch', '{}', 2,
       CASE WHEN reasons[place] = 'rejected' THEN 'unreadable' ELSE 'failed' END, 'a bad day', moment, moment,
       'bench', ids[place]
  FROM (SELECT CAST($5 AS text[]) AS ids, CAST($6 AS text[]) AS queues, CAST($7 AS text[]) AS reasons) AS groups,
       generate_series(CAST($1 AS bigint), CAST($2 AS bigint)) AS n,
       LATERAL (SELECT now() - make_interval(secs => CAST($4 AS integer) * 3600.0 * (CAST($3 AS bigint) - n) / $3)
                       AS moment, 1 + (n * 7919) % cardinality(ids) AS place) AS then_
 ORDER BY n
"""

_MINUTES = """
INSERT INTO dlq_handler.letter_minute (minute, group_id, letters, failed, last_at, last_id)
SELECT date_trunc('minute', received_at), group_id, count(*), count(*) FILTER (WHERE outcome = 'failed'),
       max(received_at), max(id)
  FROM dlq_handler.letter GROUP BY 1, 2
"""

_GROUPS = """
INSERT INTO dlq_handler.letter_group (id, category, reason, queue, detail, first_at, last_at, letters, failed, actions)
SELECT given.id, given.category, given.reason, given.queue, given.detail, seen.first_at, seen.last_at, seen.letters,
       seen.failed, '{etl.load_1,etl.load_2}'
  FROM (SELECT CAST($1 AS text) AS id, CAST($2 AS text) AS category, CAST($3 AS text) AS reason,
               CAST($4 AS text) AS queue, CAST($5 AS text) AS detail) AS given,
       LATERAL (SELECT min(minute) AS first_at, max(last_at) AS last_at, sum(letters) AS letters, sum(failed) AS failed
                  FROM dlq_handler.letter_minute WHERE group_id = given.id HAVING count(*) > 0) AS seen
"""

# Most letters expired in the queue of some worker; some overflowed; a sender cannot spell.
GROUPS = (
    *(GroupKey(category=Category.NOT_TAKEN, reason="expired", queue=worker_queue(n + 1)) for n in range(60)),
    GroupKey(category=Category.QUEUE_FULL, reason="maxlen", queue=worker_queue(1)),
    GroupKey(
        category=Category.UNREADABLE,
        reason="rejected",
        queue="attune.enforcements.queue",
        detail=ParseProblem.EXECUTION_ID_MISSING.value,
    ),
)


@asynccontextmanager
async def letters_stage(
    world: World, *, letters: int, print_line: Callable[[str], None]
) -> AsyncIterator[Stage]:
    """A vhost with the executor's queues, and a database with so many letters of the last day."""
    async with stale_stage(world, history=0, stale=0) as stage:
        print_line(f"pages: {letters} letters are written")
        async with stage.session() as session:
            await _letters(session, letters)
            await session.execute(_MINUTES)
            for key in GROUPS:
                await session.execute(_GROUPS, key.id, key.category.value, key.reason, key.queue, key.detail)
            for table in ("letter", "letter_group", "letter_minute"):
                await session.execute(f"VACUUM (ANALYZE) dlq_handler.{table}")
            await session.execute("CHECKPOINT")
        yield stage


async def _letters(session: Session, letters: int) -> None:
    """The indexes of the many are made at once, at the end: kept up row by row they take most of the time."""
    indexes = await session.fetch(
        """
        SELECT indexname, indexdef FROM pg_indexes
         WHERE schemaname = 'dlq_handler' AND tablename = 'letter' AND indexdef NOT LIKE '%UNIQUE%'
        """
    )
    for index in indexes:
        await session.execute(f"DROP INDEX dlq_handler.{index['indexname']}")
    parts = [key.id for key in GROUPS], [key.queue for key in GROUPS], [key.reason for key in GROUPS]
    for first in range(1, letters + 1, INSERTED_AT_ONCE):
        last = min(first + INSERTED_AT_ONCE - 1, letters)
        await session.execute(_LETTERS, first, last, letters, HOURS, *parts)
    for index in indexes:
        await session.execute(index["indexdef"])
