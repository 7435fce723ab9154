"""Keep the last view and its diagnoses: however many people ask, the servers are asked once.

The leader collects the view, shares it through the database, and puts changes on record. Other replicas read the shared
view. Without a valid one (no leader, no database) a replica collects the view itself. What a replica saw while the
database was unavailable goes on record when it leads and the database is back. Never: acts on what it sees.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from time import process_time

from dlq_handler.broker.consumer import QueueConsumer
from dlq_handler.broker.publisher import Publisher
from dlq_handler.clock import monotonic_seconds
from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.database.transaction import Transaction
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.diagnosis import diagnoses_sql as store
from dlq_handler.diagnosis import shared_view_sql
from dlq_handler.diagnosis.answer import answer_of
from dlq_handler.diagnosis.ask_replica import gate_fact
from dlq_handler.diagnosis.check_flows import flow_figures
from dlq_handler.diagnosis.check_queues import count_missing_queues
from dlq_handler.diagnosis.check_replica import Lacks, Patience
from dlq_handler.diagnosis.check_services import ServiceFinding, count_services
from dlq_handler.diagnosis.checks import Check
from dlq_handler.diagnosis.collector import ViewCollector
from dlq_handler.diagnosis.diagnose import diagnose
from dlq_handler.diagnosis.diagnosis import Diagnosis
from dlq_handler.diagnosis.observe import beginnings_on_record
from dlq_handler.diagnosis.shared_view import Observation, decode, encode
from dlq_handler.diagnosis.since import dated, is_change, is_due
from dlq_handler.diagnosis.view import (
    BrakeFact,
    GateFact,
    ObservedWorker,
    OwnConnections,
    Unknown,
    View,
    outdated,
    with_unavailable,
    without_database,
)
from dlq_handler.health import Readiness
from dlq_handler.history import events_sql
from dlq_handler.history.event import DIAGNOSIS_CHANGED, Topic
from dlq_handler.loop import every, pause_after
from dlq_handler.metric_values import FlowFigures
from dlq_handler.safety.brake import mode_of
from dlq_handler.safety.brake_service import Brake
from dlq_handler.safety.gate import GateCause
from dlq_handler.safety.gate_service import Gate
from dlq_handler.text import in_units
from dlq_handler.workers.availability import Availability

# Of a long outage of the database the first and the last changes matter.
MOST_KEPT = 20

# Longer than an observation may take in which no question has an answer in time.
TOO_OLD_SECONDS = 90.0

# A connection that is lost and opened all the time must not make this the work of the process.
LEAST_SECONDS = 2.0

# A replica that stops has no more time for this.
STOP_SECONDS = 1.0

# A slow fleet is observed less often: the pause is this many times as long as the observation took. A large one too:
# this process spends a small share of its CPU time on it.
PAUSE_FACTOR = 5.0
LONGEST_PAUSE_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    view: View
    diagnoses: tuple[Diagnosis, ...]
    at: datetime
    """By the database's clock, or this machine's while it does not answer."""
    taken_at: float
    """The process clock: gives its age now."""


class Diagnoser:
    def __init__(
        self,
        database: Database,
        collector: ViewCollector,
        *,
        leadership: Leadership,
        replica: str,
        patience: Patience,
        source: QueueConsumer[DeadLetter] | None = None,
        publisher: Publisher | None = None,
        brake: Brake | None = None,
        gate: Gate | None = None,
        readiness: Readiness | None = None,
        interval_seconds: float = 10.0,
    ) -> None:
        self._database, self._collector, self._leadership = database, collector, leadership
        self._replica, self._interval_seconds = replica, interval_seconds
        self._patience, self._lacks = patience, Lacks()
        self._source, self._publisher, self._brake, self._gate = source, publisher, brake, gate
        self._wake = asyncio.Event()
        if readiness is not None:
            # A server or the intake was lost, or is back: pages must not show the state before it for an interval.
            readiness.wake_when_changed(self._wake)
        self._corrected: Observed | None = None
        self._latest: Observed | None = None
        self._beginnings: dict[Check, datetime] = {}
        self._has_recalled = False
        self._unwritten: deque[Observed] = deque(maxlen=MOST_KEPT)
        self._pause_seconds = interval_seconds
        self._unavailable: Mapping[int, ObservedWorker] = {}
        """Workers that the last shared view before this process found unavailable."""
        self._shared: tuple[datetime, Observation] | None = None
        """The last one that was read, and its time."""

    @property
    def latest(self) -> Observed | None:
        """None: before the first observation.

        What this replica found since then by itself is included: an outage of the database, a change of the brake or
        of its safety gate. An observation that is too old counts as unknown: observations that fail, for whatever
        reason, must not leave green what was green.
        """
        seen = self._latest
        if seen is None:
            return None
        outage = self._database.outage
        if outage is not None and seen.view.has_database:
            view = without_database(
                seen.view, error=outage.what, is_unreachable=outage.is_unreachable, since=outage.since
            )
            return self._diagnosed(seen, self._with_own_state(view))
        age = monotonic_seconds() - seen.taken_at
        if age <= self._valid_seconds:
            return self._diagnosed(seen, self._with_own_state(seen.view))
        why = f"the last observation was {in_units(age)} ago; the log of {self._replica} gives the reason"
        view = outdated(seen.view, why)
        return replace(seen, view=view, diagnoses=diagnose(view))

    @latest.setter
    def latest(self, seen: Observed | None) -> None:
        self._latest = seen

    @property
    def _valid_seconds(self) -> float:
        return max(TOO_OLD_SECONDS, shared_view_sql.VALID_INTERVALS * self._pause_seconds)

    def _with_own_state(self, view: View) -> View:
        """Brake and gate are read every two seconds: a page must not show a trip, or a release, an interval late."""
        fact, recent = view.brake, None if self._brake is None else self._brake.recent_view()
        if recent is not None and isinstance(fact, BrakeFact) and recent.now > fact.view.now:
            # A hold also ends by itself, which changes the mode and no state.
            modes = mode_of(recent, fact.policy), mode_of(fact.view, fact.policy)
            if recent.state != fact.view.state or modes[0] is not modes[1]:
                view = replace(view, brake=replace(fact, view=recent))
        gate = None if self._gate is None else gate_fact(self._gate.state)
        if gate is not None and _causes(gate) != _causes(view.gate):
            view = replace(view, gate=gate)
        return view

    def _diagnosed(self, seen: Observed, view: View) -> Observed:
        """`seen`, if nothing has changed since. Diagnosed once for each change, and not for each request."""
        if view is seen.view:
            return seen
        known = self._corrected
        if known is None or known.view != view:
            diagnoses = dated(diagnose(view), self._beginnings, at=seen.at)[0]
            known = replace(seen, view=view, diagnoses=diagnoses)
            self._corrected = known
        return known

    def count_services(self) -> Mapping[ServiceFinding, int | None]:
        """Services of the host that have to be restarted, as last observed; empty before the first observation."""
        seen = self.latest
        return {} if seen is None else count_services(seen.view)

    def count_missing_queues(self) -> int | None:
        """Queues of the host's services that do not exist, as last observed; None: unknown."""
        seen = self.latest
        return None if seen is None else count_missing_queues(seen.view)

    def flow_figures(self) -> FlowFigures:
        """For the metrics, as last observed. A scrape asks for each series: nothing is diagnosed for it."""
        seen = self._latest
        if seen is None or self._database.outage is not None:
            return FlowFigures()
        is_valid = monotonic_seconds() - seen.taken_at <= self._valid_seconds
        return flow_figures(seen.view) if is_valid else FlowFigures()

    async def run(self, stop: asyncio.Event) -> None:
        await every(self._interval_seconds, self._paced, stop, name="diagnoser", wake=self._wake)
        # Also without the lease, which is given up before: else `status` says "ok" after the last replica has stopped.
        # Without the database the view becomes too old by itself.
        await answer_of(shared_view_sql.withdraw(self._database, self._replica), within_seconds=STOP_SECONDS)

    async def _paced(self) -> None:
        """Observe, unless the last observation took so long that it is too early for the next one."""
        age = monotonic_seconds() - self._latest.taken_at if self._latest else self._pause_seconds
        is_slow = self._pause_seconds > self._interval_seconds
        pause = self._pause_seconds - self._interval_seconds / 2 if is_slow else LEAST_SECONDS
        if age >= min(pause, self._pause_seconds):
            await self.tick()

    async def tick(self) -> None:
        if self._latest is None:
            await answer_of(self._show_shared())
        view, taken_at = await self._observe()
        if not self._has_recalled and view.has_database:
            await self._recall(view.at)
        # In a thread: with thousands of workers it takes longer than anything may hold the event loop.
        found = await asyncio.to_thread(diagnose, view)
        diagnoses, self._beginnings = dated(found, self._beginnings, at=view.at)
        seen = Observed(view=view, diagnoses=diagnoses, at=view.at, taken_at=taken_at)
        self._latest = seen
        if not view.has_database:
            if not self._unwritten or is_change(self._unwritten[-1].diagnoses, diagnoses):
                self._unwritten.append(seen)
        elif self._leadership.is_leader:
            await self._share(seen)

    async def _observe(self) -> tuple[View, float]:
        """The view, and when it was made by the process clock."""
        if not self._leadership.is_leader:
            shared = await answer_of(self._read_shared())
            if isinstance(shared, tuple):
                observation, age_seconds = shared
                # A problem has one beginning, in whichever replica it is shown.
                self._beginnings = dict(observation.beginnings)
                view = replace(observation.view, gate=await self._collector.gate())
                return self._with_own(view), monotonic_seconds() - age_seconds
        started, cpu_started = monotonic_seconds(), process_time()
        view = with_unavailable(await self._collector.collect(), self._unavailable)
        ended = monotonic_seconds()
        own_pause = pause_after(process_time() - cpu_started)
        pause = min(LONGEST_PAUSE_SECONDS, max(PAUSE_FACTOR * (ended - started), own_pause))
        # Time limits that ran out do not make the fleet slow to observe.
        are_servers_up = view.has_database and view.has_broker
        self._pause_seconds = max(self._interval_seconds, pause if are_servers_up else 0.0)
        return self._with_own(view), ended

    async def _show_shared(self) -> None:
        """Show the last observation before this process until it has made one: a restart must hide nothing."""
        found = await shared_view_sql.read_shared(self._database)
        if found is None or found.parts is None or found.age_seconds > TOO_OLD_SECONDS:
            return
        observation = await decode(found.parts)
        if observation is None or observation.view.is_shadow != self._collector.is_shadow:
            return
        view = observation.view
        self._beginnings = dict(observation.beginnings)
        diagnoses, _ = dated(await asyncio.to_thread(diagnose, view), self._beginnings, at=found.at)
        taken_at = monotonic_seconds() - found.age_seconds
        self._latest = Observed(view=view, diagnoses=diagnoses, at=found.at, taken_at=taken_at)
        if not isinstance(view.workers, Unknown):
            self._unavailable = {
                one.registered.worker.id: one
                for one in view.workers
                if one.standing.availability is Availability.UNAVAILABLE
            }

    async def _read_shared(self) -> tuple[Observation, float] | None:
        """The leader's view and its age; None: there is no valid one."""
        before = self._shared
        found = await shared_view_sql.read_shared(self._database, newer_than=before[0] if before else None)
        if found is None or not found.is_valid:
            return None
        if found.parts is not None:
            observation = await decode(found.parts)
            self._shared = None if observation is None else (found.at, observation)
        # A replica in the other mode reads another intake queue.
        if self._shared is None or self._shared[1].view.is_shadow != self._collector.is_shadow:
            return None
        self._pause_seconds = found.interval_seconds
        return self._shared[1], found.age_seconds

    def _with_own(self, view: View) -> View:
        """What a command cannot know: that a replica runs, this one, and is about to get what it lacks."""
        now = monotonic_seconds()
        self._lacks = self._lacks.after(view, now)
        fact = self._lacks.fact(now, self._patience)
        connections = OwnConnections(
            is_consuming=self._source is not None and self._source.is_consuming,
            is_blocked=self._publisher is not None and self._publisher.is_blocked,
        )
        return replace(view, own=replace(fact, connections=connections))

    async def _recall(self, at: datetime) -> None:
        """What was on record before this process started: a problem does not begin anew because a replica did."""
        self._beginnings = await beginnings_on_record(self._database, at) | self._beginnings
        self._has_recalled = True

    async def _share(self, seen: Observed) -> None:
        gate = seen.view.gate
        if isinstance(gate, GateFact):
            # Its reader is another process.
            gate = replace(gate, replica=self._replica)
        observation = Observation(view=replace(seen.view, own=None, gate=gate), beginnings=self._beginnings)
        parts = await encode(observation)
        async with self._database.transaction() as tx:
            # First: until the commit its row is locked, so two that take themselves for the leader do not both record a
            # change. The lock of the events, for which every action of an operator waits, comes with the event itself.
            await shared_view_sql.share(
                tx, parts, at=seen.at, interval_seconds=self._pause_seconds, replica=self._replica
            )
            last = await store.last(tx)
            for one in (*self._unwritten, seen):
                if last is None or one.at > last[0]:
                    last = await self._record(tx, last, one)
        self._unwritten.clear()

    async def _record(
        self, tx: Transaction, last: tuple[datetime, list[Diagnosis]] | None, seen: Observed
    ) -> tuple[datetime, list[Diagnosis]] | None:
        is_news = is_change(last[1] if last else None, seen.diagnoses)
        if not is_news and last is not None and not is_due(last[1], last[0], seen.diagnoses, seen.at):
            return last
        await store.record_change(tx, seen.diagnoses, at=seen.at)
        worst = seen.diagnoses[0]
        await events_sql.record_event(
            tx,
            topic=Topic.DIAGNOSIS,
            kind=DIAGNOSIS_CHANGED,
            subject=worst.check.value,
            detail=worst.health.value,
            replica=self._replica,
            at=seen.at,
        )
        return seen.at, list(seen.diagnoses)


def _causes(gate: GateFact | Unknown) -> frozenset[GateCause] | None:
    """None: unknown. The explanations have ages in them, which change all the time."""
    return None if isinstance(gate, Unknown) else frozenset(gate.causes)
