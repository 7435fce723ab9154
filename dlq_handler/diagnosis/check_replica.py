"""Checks of dlq-handler itself: do replicas take dead letters, may they decide, does one lead, are events published?

Pure. What a command cannot ask of a replica elsewhere it concludes: a replica that consumes is stopped by neither gate
nor brake.
"""

from dataclasses import dataclass
from datetime import timedelta

from dlq_handler.diagnosis.check_queues import (
    IntakeState,
    describe_intake,
    describe_waiting,
    intake_state,
    replicas_of,
    unidentified,
)
from dlq_handler.diagnosis.checks import Check
from dlq_handler.diagnosis.diagnosis import REPAIR_FIRST, Diagnosis, ok, problem, unknown
from dlq_handler.diagnosis.view import (
    OFF,
    BrakeFact,
    DatabaseFact,
    GateFact,
    LeaderFact,
    OwnFact,
    QueueFact,
    Unknown,
    UnknownCause,
    View,
)
from dlq_handler.safety import brake as the_brake
from dlq_handler.safety.brake import BrakeMode, mode_of
from dlq_handler.safety.gate import GateCause
from dlq_handler.text import in_units

# A completion event is published within a second of its commit. One that waits longer than this is kept by something.
STUCK_SECONDS = 60.0

# A replica that runs has the lease within 40 seconds, and after an outage within the longest pause between two
# attempts. For an observer outside of the replica: a little more than both.
RETAKEN_SECONDS = 60.0

ASKS_AGAIN = "Wait a moment: the replica asks again by itself. If it stays so, its log gives the reason."
CHECK_URL = "Check database.url and database.schema. The gate opens by itself when the view is right again."
FIT = "Run the version of dlq-handler that fits the tables. The gate opens by itself when they fit."
RESTART = "Restart the replica that hangs. Do not start a second one: its address is taken."
START = "Start `dlq-handler run`. If a replica runs, its /readyz says what it waits for."


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """For how long a replica may lack what it gets by itself after a start, an outage or a stop."""

    opens_within_seconds: float
    leads_within_seconds: float

    @classmethod
    def of(cls, *, interval_seconds: float, backoff_seconds: float, lease_seconds: float) -> "Patience":
        """A service that met an unavailable server pauses for `backoff_seconds`, and is observed an interval later.

        `lease_seconds`: the longest time until a free lease is taken.
        """
        back_within_seconds = backoff_seconds + interval_seconds
        return cls(
            opens_within_seconds=back_within_seconds,
            leads_within_seconds=max(back_within_seconds, lease_seconds),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lacks:
    """What a replica lacks, from observation to observation, by the process clock; None: nothing, or unknown.

    Counted from the first observation that shows it, while nothing else explains it.
    """

    unconsumed_since: float | None = None
    leaderless_since: float | None = None

    def after(self, view: View, at: float) -> "Lacks":
        return Lacks(
            unconsumed_since=_since(self.unconsumed_since, at) if is_unconsumed(view) else None,
            leaderless_since=_since(self.leaderless_since, at) if is_leaderless(view) else None,
        )

    def fact(self, at: float, patience: Patience) -> OwnFact:
        return OwnFact(
            unconsumed_seconds=at - _since(self.unconsumed_since, at),
            opens_within_seconds=patience.opens_within_seconds,
            leaderless_seconds=at - _since(self.leaderless_since, at),
            leads_within_seconds=patience.leads_within_seconds,
        )


def _since(before: float | None, at: float) -> float:
    return at if before is None else before


def replicas(view: View) -> Diagnosis | None:
    fact = view.intake
    if fact == OFF:
        return None
    if isinstance(fact, Unknown):
        return unknown(Check.REPLICAS, fact)
    state, intake = intake_state(fact, view.own_prefix), describe_intake(fact, view.own_prefix)
    if state is IntakeState.CONSUMED:
        return ok(Check.REPLICAS, _sentence(intake))
    if state is IntakeState.UNIDENTIFIED:
        if view.own and view.own.connections.is_consuming and fact.consumers:
            # The management API does not say whose consumers those are. One of them is this replica.
            waiting = describe_waiting(fact.consumers)
            return ok(Check.REPLICAS, f"This replica consumes {fact.name!r}, where {waiting}.")
        return unidentified(Check.REPLICAS, fact, intake)
    return _without_replica(view, fact, intake)


def _without_replica(view: View, fact: QueueFact, intake: str) -> Diagnosis:
    # All replicas ended together when none takes the lease either. One that lives and pauses keeps it.
    is_over = view.own is None and is_leaderless(view)
    ended_at = view.leader.until if is_over and isinstance(view.leader, LeaderFact) else None
    evidence = () if ended_at is None else ("no replica leads since the last leader ended",)
    paused_by = what_pauses(view) if fact.consumers is not None else None
    if paused_by is not None:
        # Another replica would pause too.
        return problem(
            Check.REPLICAS,
            f"Paused by the {paused_by.value}: {intake}.",
            f"Correct the {paused_by.value} first. A running replica then continues by itself.",
            since=ended_at,
            evidence=evidence,
            headline=f"dlq-handler is paused by the {paused_by.value}",
        )
    if _hangs(view.gate):
        return problem(
            Check.REPLICAS,
            f"{_why(view.gate)}; {intake}.",
            RESTART,
            since=ended_at,
            evidence=evidence,
            headline="A replica of dlq-handler hangs",
        )
    if view.own is None:
        return problem(Check.REPLICAS, _sentence(intake), START, since=ended_at, evidence=evidence)
    if view.own.unconsumed_seconds < view.own.opens_within_seconds:
        return unknown(
            Check.REPLICAS,
            Unknown(f"this replica runs and opens its consumer; {intake}", UnknownCause.TAKES_TIME),
            "Wait a moment: it tries again by itself, and its /readyz says what it waits for.",
        )
    return problem(
        Check.REPLICAS,
        f"This replica runs and does not get its consumer; {intake}.",
        "Read what `consumer` in its /readyz waits for. Its log says more.",
    )


def is_unconsumed(view: View) -> bool:
    """No replica takes dead letters, and nothing that is known pauses them."""
    fact = view.intake
    if not isinstance(fact, QueueFact) or not intake_state(fact, view.own_prefix).is_without_replica:
        return False
    return fact.consumers is None or what_pauses(view) is None


def is_leaderless(view: View) -> bool:
    return isinstance(view.leader, LeaderFact) and not view.leader.is_held


def gate(view: View) -> Diagnosis:
    fact = view.gate
    if isinstance(fact, Unknown):
        if fact.cause is not UnknownCause.REPLICA_UNSURE and _is_consuming(view):
            explanation = "The gate lets dead letters pass: a replica takes them."
            return ok(Check.SAFETY_GATE, explanation, evidence=(fact.explanation,))
        return unknown(Check.SAFETY_GATE, fact, _way_to_gate(view, fact))
    serious = [cause for cause in GateCause if cause in fact.causes and cause is not GateCause.YOUNG_LINK]
    explanation = fact.explanation or ", ".join(sorted(fact.causes))
    evidence = (f"asked: {fact.replica}",)
    if any(cause.stops_everything for cause in serious):
        return problem(
            Check.SAFETY_GATE,
            f"The gate is closed, no dead letter is decided: {explanation}.",
            FIT if GateCause.SCHEMA in serious else CHECK_URL,
            since=fact.since,
            evidence=evidence,
        )
    if serious:
        return problem(
            Check.SAFETY_GATE,
            f"Decisions that need heartbeats wait: {explanation}.",
            "Find out what set the database's clock. The gate opens by itself.",
            since=fact.since,
            evidence=evidence,
            headline="Decisions that need heartbeats are paused",
        )
    if fact.causes:
        # How every process begins.
        return ok(Check.SAFETY_GATE, f"The gate opens by itself: {explanation}.", evidence=evidence)
    return ok(Check.SAFETY_GATE, "The gate is open.", evidence=evidence)


def _way_to_gate(view: View, fact: Unknown) -> str:
    if fact.cause is UnknownCause.REPLICA_UNSURE:
        return ASKS_AGAIN if view.has_database else REPAIR_FIRST
    if fact.cause is UnknownCause.REPLICA_HANGS:
        return RESTART
    if view.own is None and is_unconsumed(view):
        # No listener to correct: no replica runs that could have one.
        return "Start `dlq-handler run`: only a running replica can report this."
    return REPAIR_FIRST


def brake(view: View) -> Diagnosis:
    fact = view.brake
    if isinstance(fact, Unknown):
        return unknown(Check.BRAKE, fact)
    limit = fact.policy.max_decisions_per_minute
    ended = f"{fact.view.ended_last_minute} executions were ended in the last {the_brake.WINDOW_SECONDS} s"
    match mode := mode_of(fact.view, fact.policy):
        case BrakeMode.HOLDING | BrakeMode.LIMITED:
            return _tripped(view, fact, mode, ended)
        case BrakeMode.RELEASED:
            released = the_brake.in_words(fact.view, fact.policy) or "released"
            return ok(Check.BRAKE, released, evidence=(ended,))
        case BrakeMode.OFF:
            return ok(Check.BRAKE, "No limit is set.", evidence=(ended,))
        case BrakeMode.NORMAL:
            return ok(Check.BRAKE, f"Not tripped. The limit is {limit} a minute.", evidence=(ended,))


def _tripped(view: View, fact: BrakeFact, mode: BrakeMode, ended: str) -> Diagnosis:
    state, limit = fact.view.state, fact.policy.max_decisions_per_minute
    is_holding = mode is BrakeMode.HOLDING
    now = "nothing is ended since" if is_holding else f"at most {limit} are ended in a minute now"
    by = f"tripped by {state.tripped_by}, {the_brake.way_out(fact.view, fact.policy)}"
    return problem(
        Check.BRAKE,
        f"Tripped when the limit of {limit} ended executions a minute was reached; {now}, and {_waiting(view)}.",
        "Find out whether the workers are really unavailable. If so, release the brake; if not, leave it.",
        since=state.tripped_at,
        evidence=(*([state.explanation] if state.explanation else []), by, ended),
    )


def _waiting(view: View) -> str:
    """The dead letters in the intake queue, those included that a replica holds."""
    if not isinstance(view.intake, QueueFact) or view.intake.consumers is None:
        return "the number of waiting dead letters is unknown"
    return describe_waiting(view.intake.consumers)


def shadow_mode(view: View) -> Diagnosis:
    fact = view.is_shadow
    if isinstance(fact, Unknown):
        return unknown(Check.SHADOW_MODE, fact)
    if not fact:
        return ok(Check.SHADOW_MODE, "Off: decisions are carried out.")
    if view.live_replica is not None:
        return problem(
            Check.SHADOW_MODE,
            f"These settings are in shadow mode, but replica {view.live_replica!r} runs in live mode. Checks of the "
            "intake queue and its routes are about shadow mode, not about that replica.",
            "Set dlq_handler.shadow.enabled to false here too (ATTUNE__DLQ_HANDLER__SHADOW__ENABLED=false), and run "
            "the command again.",
            headline="These settings are in shadow mode, a replica is not",
        )
    return problem(
        Check.SHADOW_MODE,
        "Copies of dead letters are decided. No execution is ended and no event is published.",
        "Set dlq_handler.shadow.enabled to false when the comparison is complete.",
    )


def timeout_monitor(view: View) -> Diagnosis | None:
    fact = view.leader
    if fact == OFF:
        return None
    if isinstance(fact, Unknown):
        return unknown(Check.TIMEOUT_MONITOR, fact)
    if fact.is_held:
        explanation = "One replica leads, and scans for executions that no dead letter reports."
        return ok(Check.TIMEOUT_MONITOR, explanation)
    no_leader = "No replica leads: executions that no dead letter reports stay open"
    own = view.own
    if own is None and _is_just_back(view, fact):
        return unknown(
            Check.TIMEOUT_MONITOR,
            Unknown(
                "no replica leads now; a replica runs, which takes the lease after an outage or a start",
                UnknownCause.TAKES_TIME,
            ),
            "Wait a moment, then run the command again. If it stays so, the log of the replica gives the reason.",
        )
    if own is None and _hangs(view.gate):
        return problem(Check.TIMEOUT_MONITOR, f"{no_leader}; {_why(view.gate)}.", RESTART, since=fact.until)
    if own is None:
        action = "Start `dlq-handler run`. If a replica runs, its log says why it does not lead."
        return problem(Check.TIMEOUT_MONITOR, f"{no_leader}.", action, since=fact.until)
    if own.leaderless_seconds < own.leads_within_seconds:
        return unknown(
            Check.TIMEOUT_MONITOR,
            Unknown("no replica leads now; this replica runs and takes the lease", UnknownCause.TAKES_TIME),
            "Wait a moment: it tries again by itself. If it stays so, its log gives the reason.",
        )
    return problem(
        Check.TIMEOUT_MONITOR,
        f"{no_leader}; this replica runs.",
        "Read the log of this replica: it says why it does not lead.",
        since=fact.until,
    )


def _is_just_back(view: View, fact: LeaderFact) -> bool:
    """From outside: a replica runs, and has not been without the lease for longer than that may take.

    The lease ended when the database went, so after a long outage its age proves nothing; then the replica's
    connection does.
    """
    is_unsure = isinstance(view.gate, Unknown) and view.gate.cause is UnknownCause.REPLICA_UNSURE
    is_answering = isinstance(view.gate, GateFact) or is_unsure
    if not (is_answering or _is_consuming(view)):
        return False
    if fact.until is not None and (view.at - fact.until).total_seconds() < RETAKEN_SECONDS:
        return True
    if isinstance(view.gate, GateFact):
        return GateCause.YOUNG_LINK in view.gate.causes
    # It has not asked since. One that stays without the database gives its consumer up, so this ends. The management
    # API is late with the tag of a new consumer.
    intake = view.intake
    is_consumed = (
        isinstance(intake, QueueFact) and not intake_state(intake, view.own_prefix).is_without_replica
    )
    return is_answering and is_consumed


def publishing(view: View) -> Diagnosis:
    fact = view.outbox
    if isinstance(fact, Unknown):
        return unknown(Check.PUBLISHING, fact)
    if not view.has_broker and not isinstance(view.broker, Unknown):
        why = f"the broker is unreachable; {fact.pending} completion event(s) wait"
        return unknown(Check.PUBLISHING, Unknown(why, UnknownCause.BROKER_UNAVAILABLE))
    if fact.oldest_seconds <= STUCK_SECONDS:
        return ok(Check.PUBLISHING, f"{fact.pending} completion event(s) wait.")
    return problem(
        Check.PUBLISHING,
        f"{fact.pending} completion event(s) wait, the oldest for {in_units(fact.oldest_seconds)}. Their slots and "
        "workflows wait too.",
        "Check that a replica runs, that the broker accepts messages, and that the executions exchange routes them.",
        since=view.at - timedelta(seconds=fact.oldest_seconds),
        evidence=() if fact.last_error is None else (f"last error: {fact.last_error}",),
    )


def what_pauses(view: View) -> Check | None:
    """What makes every replica give its dead letters back; None: nothing that is known, or no replica runs."""
    if isinstance(view.database, DatabaseFact) and view.database.error is not None:
        return Check.DATABASE
    if isinstance(view.gate, GateFact) and any(cause.stops_everything for cause in view.gate.causes):
        return Check.SAFETY_GATE
    is_tripped = isinstance(view.brake, BrakeFact) and mode_of(view.brake.view, view.brake.policy).is_tripped
    # The brake holds whether or not a replica runs; one that observes, answers or leads does.
    is_unanswered = isinstance(view.gate, Unknown) and view.gate.cause is not UnknownCause.REPLICA_UNSURE
    is_absent = view.own is None and is_unanswered and is_leaderless(view)
    return Check.BRAKE if is_tripped and not is_absent else None


def _is_consuming(view: View) -> bool:
    fact = view.intake
    if not isinstance(fact, QueueFact) or fact.consumers is None:
        return False
    return replicas_of(fact.consumers, view.own_prefix) > 0


def _hangs(gate: GateFact | Unknown) -> bool:
    return isinstance(gate, Unknown) and gate.cause is UnknownCause.REPLICA_HANGS


def _why(gate: GateFact | Unknown) -> str:
    return _sentence(gate.explanation, stop="") if isinstance(gate, Unknown) else ""


def _sentence(clause: str, *, stop: str = ".") -> str:
    return f"{clause[0].upper()}{clause[1:]}{stop}"
