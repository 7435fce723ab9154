"""Checks of Attune's own timeout monitor, and of the programs that publish unusable messages. Pure."""

from dataclasses import replace

from dlq_handler.diagnosis.checks import Check
from dlq_handler.diagnosis.diagnosis import Diagnosis, ok, problem, unknown
from dlq_handler.diagnosis.view import OFF, Unknown, View
from dlq_handler.text import in_units

SWITCH_OFF = "Set executor.enable_timeout_monitor to false in Attune's settings and restart its executor."


def attune_monitor(view: View) -> Diagnosis | None:
    """None while the monitor of dlq-handler is off, or in shadow mode: then Attune's monitor is the only one.

    Attune's monitor also fails executions that a busy worker holds and runs later. It is on by default, so that it is
    on is a recommendation; executions that it ended are a problem.
    """
    if view.leader == OFF or view.is_shadow is True:
        return None
    fact = view.attune_monitor
    if isinstance(fact, Unknown):
        return unknown(Check.ATTUNE_MONITOR, fact)
    span = in_units(fact.span_seconds)
    if fact.ended:
        return problem(
            Check.ATTUNE_MONITOR,
            f"Attune's own timeout monitor ended {fact.ended} execution(s) in the last {span}. It also fails "
            "executions that a busy worker holds and runs later.",
            SWITCH_OFF,
            since=fact.first_at,
            headline="Attune's own timeout monitor ended executions",
        )
    if fact.is_enabled:
        return ok(
            Check.ATTUNE_MONITOR,
            "executor.enable_timeout_monitor is true in the settings that dlq-handler reads, so Attune's own timeout "
            f"monitor probably runs too. It ended no execution in the last {span}, but it fails executions that a busy "
            "worker holds and runs later.",
            action=SWITCH_OFF,
        )
    return ok(
        Check.ATTUNE_MONITOR,
        f"Attune's own timeout monitor is off, and ended no execution in the last {span}.",
    )


def unusable_letters(view: View) -> Diagnosis:
    fact = view.letters
    if isinstance(fact, Unknown):
        return unknown(Check.UNUSABLE_LETTERS, fact)
    span = in_units(fact.span_seconds)
    declined = (
        f"the scheduler also rejected the requests of {fact.declined} execution(s): it had no worker for them"
    )
    evidence = (declined,) if fact.declined else ()
    if fact.unreadable + fact.unrelated == 0:
        return ok(Check.UNUSABLE_LETTERS, f"None in the last {span}.", evidence=evidence)
    outcome = "unrelated" if fact.unrelated > fact.unreadable else "unreadable"
    found = problem(
        Check.UNUSABLE_LETTERS,
        f"{fact.unreadable} unreadable and {fact.unrelated} unrelated dead letters in the last {span}, "
        f"{fact.before} in the {span} before.",
        "Open one of them to find out which program publishes it, to which exchange and in which format.",
        since=fact.first_at,
        evidence=evidence,
        command=f"dlq-handler letters list --outcome {outcome}",
    )
    return replace(found, outcome=outcome)
