"""Rules §3: a row that the database refuses, or another session locks, does not delay the others of its batch."""

from dataclasses import replace

from sandbox.attune import messages
from sandbox.attune.executor import Dispatch
from tests.crash.world import CrashWorld
from tests.support.eventually import eventually

LETTERS = 200
# More than a NOTIFY payload can carry (8000 bytes): Attune's trigger then fails on every change of status.
TOO_LONG = {"task_name": "poison", "note": "x" * 9000}


async def test_a_poison_row_is_isolated_and_failed_once_it_is_repaired(world: CrashWorld) -> None:
    dispatches = await world.schedule(LETTERS)
    by_hand, by_itself = await poisoned(world, dispatches[70]), await poisoned(world, dispatches[140])
    healthy = [*dispatches[:70], *dispatches[71:140], *dispatches[141:]]
    await world.dead_letter([*dispatches[:70], by_hand, *dispatches[71:140], by_itself, *dispatches[141:]])
    async with world.sidecar() as sidecar:
        await eventually(lambda: records_refused(world))
        await world.settled_once(healthy)
        refused = await records_refused(world)
        assert refused.keys() == {by_hand.execution_id, by_itself.execution_id}
        assert await world.sql("SELECT count(*) FROM dlq_handler.letter WHERE next_attempt_at > now()") == [
            (2,)
        ]

        await repair(world, by_hand)
        [again] = await sidecar.cli_json(
            "letters", "reprocess", str(refused[by_hand.execution_id]), "--comment", "try"
        )
        assert again["outcome"] == "failed"
        assert again["before"] in ("update_failed", None), "None: the sidecar itself was quicker"
        await world.settled_once([*healthy, by_hand])
        assert await world.auditor.status(by_itself.execution_id) == "scheduled"

        await repair(world, by_itself)
        await world.sql(
            "UPDATE dlq_handler.letter SET next_attempt_at = now() WHERE outcome = 'update_failed'"
        )
        await world.settled_once([*healthy, by_hand, by_itself])


async def test_a_letter_whose_row_another_session_locks_is_postponed(world: CrashWorld) -> None:
    dispatches = await world.dead_lettered(LETTERS)
    locked, others = dispatches[100], dispatches[:100] + dispatches[101:]
    async with world.sidecar(start=False) as sidecar:
        async with world.auditor.database.transaction() as session:
            await session.execute("SELECT 1 FROM execution WHERE id = $1 FOR UPDATE", locked.execution_id)
            await sidecar.start()
            await world.settled_once(others)
            assert (await sidecar.metrics())["dlq_handler_dead_letters_postponed_total"] >= 1
            assert await world.auditor.status(locked.execution_id) == "scheduled"
        await world.settled_once(dispatches)


async def poisoned(world: CrashWorld, dispatch: Dispatch) -> Dispatch:
    """Its row cannot change its status any more. The row was touched, so the dispatch carries a newer stamp."""
    [(updated,)] = await world.sql(
        "UPDATE execution SET workflow_task = $2 WHERE id = $1 RETURNING updated",
        dispatch.execution_id,
        TOO_LONG,
    )
    message = messages.dispatch(
        execution_id=dispatch.execution_id,
        worker_id=dispatch.worker_id,
        action_ref="core.echo",
        scheduled_at=updated,
    )
    return replace(dispatch, scheduled_at=updated, message=message)


async def repair(world: CrashWorld, dispatch: Dispatch) -> None:
    """Without the triggers, one of which would move `updated` and make the letter one of an earlier attempt."""
    async with world.auditor.database.transaction() as session:
        await session.execute("SET LOCAL session_replication_role = replica")
        await session.execute(
            "UPDATE execution SET workflow_task = NULL WHERE id = $1", dispatch.execution_id
        )


async def records_refused(world: CrashWorld) -> dict[int, int]:
    """Record ids by execution id."""
    return dict(
        await world.sql("SELECT execution_id, id FROM dlq_handler.letter WHERE outcome = 'update_failed'")
    )
