"""Diagnose ourselves: does a sidecar take letters, may it decide them, does it look for the others, are ends announced?

Pure. What a command cannot ask of a sidecar elsewhere it concludes: who consumes is stopped by neither gate nor brake.
"""

from datetime import timedelta

from dlq_handler.diagnosis import doctor_broker_lines
from dlq_handler.diagnosis.diagnosis import ANNOUNCING, BRAKE, GATE, MONITOR, SHADOW, Diagnosis, diagnosed
from dlq_handler.diagnosis.doctor_lines import REPAIR_FIRST
from dlq_handler.diagnosis.observation import Health, Observation
from dlq_handler.diagnosis.servers import unknown
from dlq_handler.diagnosis.view import (
    OFF,
    BrakeSeen,
    DatabaseSeen,
    GateSeen,
    Hung,
    LeaderSeen,
    OwnSeen,
    QueueSeen,
    Unknown,
    Unsure,
    View,
)
from dlq_handler.safety import brake as the_brake
from dlq_handler.safety.brake import BrakeMode, mode_of
from dlq_handler.safety.gate import GateCause
from dlq_handler.text import in_units

# A notice goes out within a second of its commit. After so long something keeps it, and slots and workflows wait.
STUCK_SECONDS = 60.0

LOOKS_AGAIN = "wait a moment: it looks again by itself; if it stays so, its log says why"

CHECK = "check database.url and database.schema; it opens by itself when the view is right again"
FIT = "run the version of dlq-handler that fits the tables; the gate opens by itself when they fit"
RESTART = "restart the replica that hangs; do not start a second one, its address is taken"

# A replica that runs has the lease within 40 seconds, and after an outage within the longest pause between two
# attempts. For an observer outside the replica: a little more than both.
RETAKEN_SECONDS = 60.0


def sidecar(view: View) -> Diagnosis | None:
    seen = view.intake
    if seen == OFF:
        return None
    if isinstance(seen, Unknown):
        return unknown(doctor_broker_lines.SIDECAR, seen)
    leader = view.leader
    # All sidecars went together when nobody takes the lease either. One that lives and pauses keeps it.
    is_over = view.own is None and is_leaderless(view)
    ended_at = leader.until if is_over and isinstance(leader, LeaderSeen) else None
    evidence = () if ended_at is None else ("nobody leads since the last sidecar that did has ended",)
    said = _of_consumers(view, seen)
    if said.health is Health.UNKNOWN and seen.taken is not None and view.own and view.own.link.is_consuming:
        # Whose consumers those are the management API would tell. One of them is ours.
        said = doctor_broker_lines.SIDECAR.ok(
            f"this replica consumes {seen.name!r}, where {doctor_broker_lines.describe_waiting(seen.taken)}"
        )
    paused_by = what_pauses(view)
    if said.health is Health.PROBLEM and seen.taken is not None and paused_by is not None:
        # Another replica would pause too.
        said = doctor_broker_lines.SIDECAR.problem(
            f"paused by the {paused_by}: {said.what}",
            f"fix the {paused_by} first; a running replica then continues on its own",
            headline=f"dlq-handler is paused by the {paused_by}",
        )
    elif said.health is Health.PROBLEM and isinstance(view.gate, Hung):
        said = doctor_broker_lines.SIDECAR.problem(
            f"{view.gate.explanation}; {said.what}", RESTART, headline="A replica of dlq-handler hangs"
        )
    elif said.health is Health.PROBLEM and view.own is not None:
        said = _of_own_consumer(view.own, said.what)
    return diagnosed(said, since=ended_at, evidence=evidence)


def is_unconsumed(view: View) -> bool:
    """None of us takes letters, and nothing that is known pauses us."""
    seen = view.intake
    if not isinstance(seen, QueueSeen) or not _is_nobody_ours(view, seen):
        return False
    return seen.taken is None or what_pauses(view) is None


def is_leaderless(view: View) -> bool:
    return isinstance(view.leader, LeaderSeen) and not view.leader.is_held


def _of_consumers(view: View, seen: QueueSeen) -> Observation:
    return doctor_broker_lines.sidecar(seen.taken, queue=seen.name, own_prefix=view.own_prefix)


def _is_nobody_ours(view: View, seen: QueueSeen) -> bool:
    return _of_consumers(view, seen).health is Health.PROBLEM


def _of_own_consumer(own: OwnSeen, what: str) -> Observation:
    """Nobody is told to start the sidecar that says this."""
    if own.opening_seconds < own.opens_within_seconds:
        return doctor_broker_lines.SIDECAR.unknown(
            f"this sidecar runs and opens its consumer; {what}",
            "wait a moment: it tries again by itself, and its /readyz says what it waits for",
        )
    return doctor_broker_lines.SIDECAR.problem(
        f"this sidecar runs and does not get its consumer; {what}",
        "see what `consumer` in its /readyz waits for; its log says more",
    )


def gate(view: View) -> Diagnosis:
    seen = view.gate
    if isinstance(seen, Unknown):
        if not isinstance(seen, Unsure) and _is_consuming(view):
            return diagnosed(
                GATE.ok("lets letters pass, for a sidecar of ours takes them"), evidence=(seen.explanation,)
            )
        return diagnosed(GATE.unknown(seen.explanation, _way_to_gate(view, seen)))
    worrying = [cause for cause in GateCause if cause in seen.causes and cause is not GateCause.YOUNG_LINK]
    words = seen.words or ", ".join(sorted(seen.causes))
    evidence = (f"asked: {seen.asked}",)
    if any(cause.stops_everything for cause in worrying):
        return diagnosed(
            GATE.problem(
                f"closed, no letter is decided: {words}",
                FIT if GateCause.SCHEMA in worrying else CHECK,
            ),
            evidence=evidence,
        )
    if worrying:
        return diagnosed(
            GATE.problem(
                f"decisions that rest on heartbeats wait: {words}",
                "find out who set the database's clock; it opens by itself",
                headline="Decisions that need heartbeats are paused",
            ),
            evidence=evidence,
        )
    if seen.causes:
        # How every process begins, and no sickness.
        return diagnosed(GATE.ok(f"opens by itself: {words}"), evidence=evidence)
    return diagnosed(GATE.ok("open"), evidence=evidence)


def _way_to_gate(view: View, seen: Unknown) -> str:
    if isinstance(seen, Unsure):
        is_database_there = isinstance(view.database, DatabaseSeen) and view.database.trouble is None
        return LOOKS_AGAIN if is_database_there else REPAIR_FIRST
    if isinstance(seen, Hung):
        return RESTART
    if view.own is None and is_unconsumed(view):
        # No listener to fix: no replica runs that could have one.
        return "start `dlq-handler run`; only a running replica can report this"
    return REPAIR_FIRST


def brake(view: View) -> Diagnosis:
    seen = view.brake
    if isinstance(seen, Unknown):
        return unknown(BRAKE, seen)
    state, evidence = seen.view.state, []
    if mode_of(seen.view, seen.policy).is_tripped:
        evidence = [state.explanation] if state.explanation else []
        evidence.append(f"tripped by {state.tripped_by}, {the_brake.way_out(seen.view, seen.policy)}")
    ended = f"{seen.view.ended_last_minute} executions were ended in the last {the_brake.WINDOW_SECONDS} s"
    return diagnosed(_of_brake(seen, view), since=state.tripped_at, evidence=(*evidence, ended))


def _of_brake(seen: BrakeSeen, view: View) -> Observation:
    words = the_brake.in_words(seen.view, seen.policy)
    limit = seen.policy.max_decisions_per_minute
    tripped = f"tripped when the limit of {limit} ended executions a minute was reached"
    fix = "see whether the workers are really gone; if so, release it, and if not, leave it"
    match mode_of(seen.view, seen.policy):
        case BrakeMode.HOLDING:
            return BRAKE.problem(f"{tripped}; nothing is ended since, and {_waiting(view)}", fix)
        case BrakeMode.LIMITED:
            return BRAKE.problem(
                f"{tripped}; at most {limit} are ended in a minute now, and {_waiting(view)}", fix
            )
        case BrakeMode.RELEASED:
            return BRAKE.ok(words or "released")
        case BrakeMode.OFF:
            return BRAKE.ok("no limit is set")
        case BrakeMode.NORMAL:
            return BRAKE.ok(f"not tripped; the limit is {limit} a minute")


def _waiting(view: View) -> str:
    """The dead letters in the intake queue: those that a replica holds wait too."""
    if not isinstance(view.intake, QueueSeen) or view.intake.taken is None:
        return "the number of waiting dead letters is unknown"
    return doctor_broker_lines.describe_waiting(view.intake.taken)


def shadow(view: View) -> Diagnosis:
    seen = view.is_shadow
    if isinstance(seen, Unknown):
        return unknown(SHADOW, seen)
    if not seen:
        return diagnosed(SHADOW.ok("off: what is decided is done"))
    return diagnosed(
        SHADOW.problem(
            "copies of letters are decided, and nothing is ended or announced",
            "set dlq_handler.shadow.enabled: false when you have seen enough",
        )
    )


def monitor(view: View) -> Diagnosis | None:
    seen = view.leader
    if seen == OFF:
        return None
    if isinstance(seen, Unknown):
        return unknown(MONITOR, seen)
    if seen.is_held:
        return diagnosed(MONITOR.ok("one sidecar leads, and looks for executions that no letter tells of"))
    return diagnosed(_of_free_lease(view, seen), since=seen.until)


def _of_free_lease(view: View, seen: LeaderSeen) -> Observation:
    own, nobody = view.own, "no sidecar leads: executions that no letter tells of stay open"
    if own is None and _is_just_back(view, seen):
        return MONITOR.unknown(
            "nobody leads just now; a sidecar is there, which takes the lease after an outage or a start",
            "wait a moment, then ask again; if it stays so, its log says why",
        )
    if own is None and isinstance(view.gate, Hung):
        return MONITOR.problem(f"{nobody}; {view.gate.explanation}", RESTART)
    if own is None:
        return MONITOR.problem(
            nobody, "start `dlq-handler run`; if one runs, its log says why it does not lead"
        )
    if own.leaderless_seconds < own.leads_within_seconds:
        return MONITOR.unknown(
            "nobody leads just now; this sidecar runs and takes the lease",
            "wait a moment: it tries again by itself; if it stays so, its log says why",
        )
    return MONITOR.problem(f"{nobody}; this sidecar runs", "its log says why it does not lead")


def _is_just_back(view: View, seen: LeaderSeen) -> bool:
    """From outside: a sidecar is there, and has not been without the lease for longer than that may take.

    The lease ended when the database went, so after a long outage its age tells nothing; then the sidecar's link does.
    """
    is_answering = isinstance(view.gate, GateSeen | Unsure)
    if not (is_answering or _is_consuming(view)):
        return False
    if seen.until is not None and (view.at - seen.until).total_seconds() < RETAKEN_SECONDS:
        return True
    if isinstance(view.gate, GateSeen):
        return GateCause.YOUNG_LINK in view.gate.causes
    # It has not looked since. One that stays without the database gives its consumer up, so this ends. Whose a new
    # consumer is the management API tells late.
    is_consumed = isinstance(view.intake, QueueSeen) and not _is_nobody_ours(view, view.intake)
    return is_answering and is_consumed


def announcing(view: View) -> Diagnosis:
    seen = view.outbox
    if isinstance(seen, Unknown):
        return unknown(ANNOUNCING, seen)
    if seen.oldest_seconds <= STUCK_SECONDS:
        return diagnosed(ANNOUNCING.ok(f"{seen.pending} notice(s) wait"))
    return diagnosed(
        ANNOUNCING.problem(
            f"{seen.pending} notice(s) of ended executions wait, the oldest for {in_units(seen.oldest_seconds)}: their "
            "slots and workflows wait too",
            "see that a sidecar runs, that the broker takes messages, and that the executions exchange routes them",
        ),
        since=view.at - timedelta(seconds=seen.oldest_seconds),
        evidence=() if seen.last_error is None else (f"last error: {seen.last_error}",),
    )


def what_pauses(view: View) -> str | None:
    """What makes every sidecar give its letters back; None: nothing that is known, or no sidecar is there to pause."""
    if isinstance(view.database, DatabaseSeen) and view.database.trouble is not None:
        return "database"
    if isinstance(view.gate, GateSeen) and any(cause.stops_everything for cause in view.gate.causes):
        return "gate"
    is_tripped = isinstance(view.brake, BrakeSeen) and mode_of(view.brake.view, view.brake.policy).is_tripped
    # The brake holds whether or not a sidecar runs; one that looks, answers or leads does.
    is_unanswered = isinstance(view.gate, Unknown) and not isinstance(view.gate, Unsure)
    is_nobody_there = view.own is None and is_unanswered and is_leaderless(view)
    return "brake" if is_tripped and not is_nobody_there else None


def _is_consuming(view: View) -> bool:
    seen = view.intake
    if not isinstance(seen, QueueSeen) or seen.taken is None:
        return False
    return any(tag.startswith(view.own_prefix) for tag in seen.taken.tags or ())
