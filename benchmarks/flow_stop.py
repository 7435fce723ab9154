"""The stop of a flow with a full queue, beside the intake of as many dead letters.

Both are the real process with its defaults, each on a vhost and a database of its own. A stop is timed from its wish to
the end of its last step or the last mark in the outbox, whichever is later, by the database's clock. Its worker has
stopped in order, so the stop waits for no heartbeat. It may wait for messages that a consumer still held
(`settle_seconds`); that counts.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.contender import Child, ContenderFailed
from benchmarks.ours import all_confirmed, measure_ours, opening, sidecar
from benchmarks.world import WORKER_ID, Stage, World
from dlq_handler.database.engine import Database
from dlq_handler.host.worker import WorkerQueueNames
from dlq_handler.lifecycle import flows_sql
from dlq_handler.lifecycle.flow import Flow, FlowStatus
from dlq_handler.lifecycle.flow_blueprint import WORKER_BLUEPRINT, WORKER_PARAM, worker_blueprint
from dlq_handler.lifecycle.options import LifecycleOptions
from dlq_handler.logs import configure_logging
from dlq_handler.operations.flow_operations import FlowOperations
from dlq_handler.operations.operation import Actor, Client
from sandbox.attune import topology

FLOW_ID = "bench"
START_SECONDS = 60
LOOK_SECONDS = 0.2
ENABLED = {"ATTUNE__DLQ_HANDLER__LIFECYCLE__ENABLED": "true"}
_ACTOR = Actor(username="bench", client=Client.CLI)

_DONE = """
SELECT (SELECT count(*) FROM execution WHERE status = 'failed') AS failed,
       (SELECT count(*) FROM dlq_handler.letter WHERE outcome = 'failed' AND reason = 'rescued') AS rescued,
       (SELECT count(*) FROM dlq_handler.outbox WHERE confirmed_at IS NOT NULL) AS marked
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRound:
    messages: int
    stop_seconds: float
    intake_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StopCourse:
    rounds: Sequence[StopRound]

    @property
    def ratio(self) -> float:
        """How many times as long as the intake, over all rounds."""
        return sum(one.stop_seconds for one in self.rounds) / sum(one.intake_seconds for one in self.rounds)


async def watch_flow_stop(
    world: World,
    *,
    messages: int,
    rounds: int,
    settings: Mapping[str, str],
    print_line: Callable[[str], None],
) -> StopCourse:
    """`settings`: of the process that stops the flow."""
    # The wishes are written here.
    configure_logging(level="error", format="json")
    done = []
    for number in range(rounds):
        # Forwards and backwards in turn, because the load of the machine changes.
        if number % 2 == 0:
            intake_seconds = await _intake(world, messages)
            stop_seconds = await _stop(world, messages, settings)
        else:
            stop_seconds = await _stop(world, messages, settings)
            intake_seconds = await _intake(world, messages)
        done.append(StopRound(messages=messages, stop_seconds=stop_seconds, intake_seconds=intake_seconds))
        print_line(
            f"flow stop {number + 1}/{rounds}: {stop_seconds:.1f} s with {messages} messages; the intake takes "
            f"{intake_seconds:.1f} s for as many dead letters"
        )
    return StopCourse(rounds=done)


async def _intake(world: World, messages: int) -> float:
    async with world.stage(messages) as stage:
        return (await measure_ours(stage)).seconds


async def _stop(world: World, messages: int, settings: Mapping[str, str]) -> float:
    async with (
        world.worker_queue_stage(messages) as stage,
        sidecar(stage, **ENABLED, **settings) as child,
    ):
        await opening(child)
        database = Database(stage.database_url)
        try:
            operations = FlowOperations(
                database,
                LifecycleOptions(enabled=True),
                {WORKER_BLUEPRINT: worker_blueprint()},
                names=WorkerQueueNames(),
            )
            await operations.start(
                _ACTOR, FLOW_ID, blueprint=WORKER_BLUEPRINT, params={WORKER_PARAM: str(WORKER_ID)}
            )
            await _until(database, child, FlowStatus.ACTIVE, seconds=START_SECONDS)
            wish = await operations.stop(_ACTOR, FLOW_ID)
            stopped = await _until(database, child, FlowStatus.STOPPED, seconds=stage.run_seconds)
        finally:
            await database.dispose()
        published_at = await all_confirmed(stage, child)
        if await child.terminate() != 0:
            raise ContenderFailed(f"the sidecar did not end well:\n{child.log_tail()}")
        await _check(stage)
        return max(stopped.since.timestamp(), published_at) - wish.flow.since.timestamp()


async def _until(database: Database, child: Child, status: FlowStatus, *, seconds: float) -> Flow:
    flow, give_up_at = None, time.monotonic() + seconds
    while time.monotonic() < give_up_at and not child.has_ended:
        async with database.transaction() as tx:
            flow = await flows_sql.read_flow(tx, FLOW_ID)
        if flow is not None and flow.status is status:
            return flow
        await asyncio.sleep(LOOK_SECONDS)
    raise ContenderFailed(f"the flow was not {status} within {seconds:.0f} s: {flow}:\n{child.log_tail()}")


async def _check(stage: Stage) -> None:
    async with stage.session() as session:
        done = dict(await session.fetchrow(_DONE) or {})
    done["completions"] = await stage.ready(topology.COMPLETED_QUEUE)
    if set(done.values()) != {stage.letters}:
        raise ContenderFailed(f"of {stage.letters} messages: {done}")
    if await stage.exists(topology.worker_queue(WORKER_ID)):
        raise ContenderFailed("the worker's queue was not deleted")


def lines(course: StopCourse) -> Iterator[str]:
    for one in course.rounds:
        yield (
            f"stop of a flow with {one.messages} queued messages: {one.stop_seconds:.1f} s; intake of as many dead "
            f"letters: {one.intake_seconds:.1f} s"
        )
