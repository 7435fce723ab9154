"""Say in words why an execution that has not ended is still waiting. Pure."""

from collections.abc import Sequence
from datetime import datetime
from typing import assert_never

from dlq_handler.domain.judge_unscheduled import UnscheduledVerdict
from dlq_handler.domain.stale_verdict import AnnounceAgain, End, NotStale, StaleOutcome, StaleRecord, Wait
from dlq_handler.domain.story_records import Waiting

GATE_IS_UNKNOWN = "whether the gate is open, only the running sidecars know: their /readyz tells"


def waiting_of(
    verdict: UnscheduledVerdict,
    *,
    verdicts: Sequence[StaleRecord],
    attempt: datetime,
    brake: str | None,
    is_monitored: bool,
    is_shadow: bool,
) -> Waiting:
    """`verdict`: what the monitor would say now. `brake`: what keeps it from acting, in words; None: nothing."""
    notes = []
    if not is_monitored:
        notes.append("dlq_handler.monitor.enabled is false: nobody looks for it")
    if is_shadow:
        notes.append("shadow mode: nothing would be changed or announced")
    refused = [
        one for one in verdicts if one.outcome is StaleOutcome.UPDATE_FAILED and one.attempt == attempt
    ]
    notes += [f"the database refused to let it end: {one.error}" for one in refused]
    match verdict:
        case Wait(why=why, until=until, evidence=evidence):
            return Waiting(why=why, until=until, notes=notes, evidence=evidence)
        case NotStale(why=why):
            return Waiting(why=f"not for us to end: {why}", notes=notes)
        case AnnounceAgain(why=why, evidence=evidence):
            why = f"about to be announced to the scheduler again: {why}"
            return Waiting(why=why, notes=notes, evidence=evidence)
        case End(becomes=becomes, why=why, evidence=evidence):
            notes += [f"brake: {brake}"] if brake else []
            until = max((one.next_try_at for one in refused if one.next_try_at), default=None)
            why = f"the next sweep makes it {becomes}: {why}"
            return Waiting(why=why, until=until, notes=[*notes, GATE_IS_UNKNOWN], evidence=evidence)
        case _:
            assert_never(verdict)
