"""Diagnose Attune's own timeout monitor beside ours: two monitors, of which one fails work that then runs. Pure."""

from dlq_handler.diagnosis.diagnosis import ATTUNES_MONITOR, Diagnosis, diagnosed
from dlq_handler.diagnosis.servers import unknown
from dlq_handler.diagnosis.view import OFF, Unknown, View
from dlq_handler.text import in_units

SWITCH_IT_OFF = "set `executor.enable_timeout_monitor: false` in Attune's settings and restart its executor"


def attunes_monitor(view: View) -> Diagnosis | None:
    """None while ours is off, or in shadow mode: then Attune's monitor is the only one."""
    if view.leader == OFF or view.is_shadow is True:
        return None
    seen = view.attunes_ends
    if isinstance(seen, Unknown):
        return unknown(ATTUNES_MONITOR, seen)
    span = in_units(seen.span_seconds)
    if not seen.count:
        return diagnosed(ATTUNES_MONITOR.ok(f"Attune's own timeout monitor ended nothing in the last {span}"))
    return diagnosed(
        ATTUNES_MONITOR.problem(
            f"Attune's own timeout monitor ended {seen.count} execution(s) in the last {span}. It also fails "
            "executions that a busy worker holds and runs later",
            SWITCH_IT_OFF,
        ),
        since=seen.first_at,
    )
