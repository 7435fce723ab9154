"""Hold a game day: make a worker's queue that nobody serves, dispatch into it, and watch from outside what comes of it.

Promises: whatever it made in the broker is removed, also after an error or a cancellation, and first of all what an
earlier one left; the sidecars are not told, so they do what they always do. Never: ends the execution itself.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from dlq_handler.broker import queue_probe
from dlq_handler.broker.admin_link import AdminLink
from dlq_handler.broker.game_day import Witness, remove_all
from dlq_handler.broker.publisher import Confirmed, OutgoingMessage, Publisher
from dlq_handler.broker.worker_queue import declare_worker_queue
from dlq_handler.clock import monotonic_seconds
from dlq_handler.domain.brake import BrakePolicy, in_words, mode_of
from dlq_handler.domain.game_day import Clock, GameDayPlan, Seen, SeenNotice, dispatch
from dlq_handler.domain.game_day_report import GameDayReport, report
from dlq_handler.domain.outgoing import Notice
from dlq_handler.domain.worker import GAME_DAY_WORKER_ID
from dlq_handler.errors import Unavailable
from dlq_handler.store import brake
from dlq_handler.store.engine import Database
from dlq_handler.store.game_day import create_execution, read_clock
from dlq_handler.store.story import records_of

# A sidecar whose consumer is being registered anew has none for a moment.
CONSUMER_WAIT_SECONDS = 3.0
_LOOK_SECONDS = 0.2


@dataclass(slots=True, kw_only=True)
class GameDay:
    plan: GameDayPlan
    database: Database
    link: AdminLink
    witness: Witness
    publisher: Publisher
    brake_policy: BrakePolicy
    config: Mapping[str, object]
    """For the execution's row: whoever finds it later must see what it was."""
    say: Callable[[str], None]
    left_behind: list[str] = field(default_factory=list)
    """What could not be removed, in words."""

    async def hold(self) -> GameDayReport:
        """Raises `Unavailable` or `AnotherGameDay` when nothing was dispatched."""
        try:
            await self.witness.open()
            if await remove_all(self.link, self.plan):
                self.say(f"an earlier game day left queue {self.plan.queue!r} behind: removed")
            consumers = await self._wait_for_consumer()
            seen = await self._rehearse() if consumers else Seen()
            seen = await self._look_around(seen)
        finally:
            await self.witness.close()
        return report(self.plan, seen, left_behind=self.left_behind)

    async def _wait_for_consumer(self) -> int | None:
        until = monotonic_seconds() + CONSUMER_WAIT_SECONDS
        # The broker can be asked, it does not tell.
        while not (consumers := await self._consumers()) and monotonic_seconds() < until:  # noqa: ASYNC110 (asked, not told)
            await asyncio.sleep(_LOOK_SECONDS)
        return consumers

    async def _consumers(self) -> int | None:
        counts = await queue_probe.count(self.link, self.plan.blueprint.intake_queue)
        return None if counts is None else counts.consumers

    async def _rehearse(self) -> Seen:
        clock = await read_clock(self.database)
        try:
            await declare_worker_queue(
                self.link, self.plan.blueprint, GAME_DAY_WORKER_ID, ttl_ms=self.plan.ttl_ms
            )
            execution = await create_execution(self.database, self.config)
            message = dispatch(execution, self.config)
            self.witness.look_for(message)
            trouble = await self._publish(message)
            dispatched_at = monotonic_seconds()
            self.say(f"execution {execution.id} dispatched; it expires in {self.plan.ttl_ms / 1000:g} s")
            trouble = trouble or await self._watch()
        finally:
            await self._remove()
        seen = Seen(
            execution_id=execution.id,
            dispatched_at=clock.moment(dispatched_at),
            clock_error_seconds=clock.error_seconds,
            trouble=trouble,
        )
        return self._with_sightings(seen, clock)

    async def _publish(self, message: Notice) -> str | None:
        """Why it was not dispatched for certain; None: it was."""
        outgoing = OutgoingMessage(
            message_id=str(message.message_id),
            correlation_id=str(message.correlation_id),
            exchange=self.plan.blueprint.executions_exchange,
            routing_key=self.plan.routing_key,
            body=message.body,
        )
        try:
            [outcome] = await self.publisher.publish([outgoing])
        except Unavailable as error:
            return f"the dispatch was not published: {error}"
        return None if isinstance(outcome, Confirmed) else f"the dispatch was not published: {outcome.text}"

    async def _watch(self) -> str | None:
        """Wait for the notice, or for the limit; why nothing more can be seen, or None."""
        until = monotonic_seconds() + self.plan.limit.total_seconds()
        has_told = False
        while self.witness.notice is None and monotonic_seconds() < until:
            if self.witness.is_lost:
                return "the connection to the broker was lost on the way"
            if self.witness.death is not None and not has_told:
                has_told = True
                self.say("expired; waiting for verdict and notice")
            self.witness.changed.clear()
            try:
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self.witness.changed.wait()
            except TimeoutError:
                continue
        return None

    def _with_sightings(self, seen: Seen, clock: Clock) -> Seen:
        death, notice = self.witness.death, self.witness.notice
        return replace(
            seen,
            expired_at=clock.moment(death.at) if death else None,
            death_time=death.death_time if death else None,
            notice=SeenNotice(at=clock.moment(notice.at), by=notice.by) if notice else None,
        )

    async def _look_around(self, seen: Seen) -> Seen:
        """What is on record, and what stands in the way if nothing is."""
        try:
            if seen.execution_id is not None:
                seen = replace(seen, records=await records_of(self.database, seen.execution_id))
            async with self.database.transaction() as tx:
                view = await brake.look(tx)
            words = in_words(view, self.brake_policy) if mode_of(view, self.brake_policy).is_tripped else None
            return replace(seen, brake=words, consumers=await self._consumers())
        except Unavailable as error:
            return replace(seen, trouble=seen.trouble or str(error))

    async def _remove(self) -> None:
        """Never fails: what is left behind is told, and removed by the next game day."""
        try:
            await remove_all(self.link, self.plan)
        except Unavailable as error:
            self.left_behind.append(f"queue {self.plan.queue!r} and the bindings of its key ({error})")
