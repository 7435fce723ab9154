"""Diagnose those who publish what no worker can take. Pure."""

from dlq_handler.diagnosis.diagnosis import UNUSABLE_LETTERS, Diagnosis, diagnosed
from dlq_handler.diagnosis.servers import unknown
from dlq_handler.diagnosis.view import Unknown, View
from dlq_handler.text import in_units


def unusable_letters(view: View) -> Diagnosis:
    seen = view.letters
    if isinstance(seen, Unknown):
        return unknown(UNUSABLE_LETTERS, seen)
    span = in_units(seen.span_seconds)
    declined = (
        f"the scheduler also rejected the requests of {seen.declined} execution(s): it had no worker for them"
    )
    evidence = (declined,) if seen.declined else ()
    if seen.unreadable + seen.unrelated == 0:
        return diagnosed(UNUSABLE_LETTERS.ok(f"none in the last {span}"), evidence=evidence)
    worst = "unrelated" if seen.unrelated > seen.unreadable else "unreadable"
    return diagnosed(
        UNUSABLE_LETTERS.problem(
            f"{seen.unreadable} unreadable and {seen.unrelated} unrelated letters in the last {span}, {seen.before} in "
            f"the {span} before",
            "look at one: who publishes it, to which exchange, in which format?",
        ),
        since=seen.first_at,
        evidence=evidence,
        command=f"dlq-handler letters list --outcome {worst}",
    )
