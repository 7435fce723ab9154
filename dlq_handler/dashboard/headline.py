"""What stands at the top of the first page: the worst diagnosis in three lines, the others in one each. Pure.

The words are the diagnosis's own, as `dlq-handler status` says them: here they are only laid out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from dlq_handler.dashboard.words import COMPONENTS, State, joined, moment, sentence, state_of, with_full_stop
from dlq_handler.diagnosis.checks import Check, Component
from dlq_handler.diagnosis.diagnosis import Diagnosis, Health, conclusion_of

_EVIDENCE_SHOWN = 2

# As they are called in the middle of a sentence.
_FINE = {
    Component.BROKER: "broker",
    Component.DATABASE: "database",
    Component.WORKERS: "workers",
    Component.EXECUTOR: "executor",
    Component.SENDERS: "senders",
    Component.DLQ_HANDLER: "this replica",
}

_WORKERS = ("/workers", "Workers")
_TOPOLOGY = ("/topology", "Topology")
_PAGES = {
    Check.BRAKE: ("/brake/release", "Release the brake…"),
    Check.WORKERS: _WORKERS,
    Check.WORKER_UNAVAILABLE: _WORKERS,
    Check.WORKER_HUNG: _WORKERS,
    Check.SERVICES: _WORKERS,
    Check.WORKER_QUEUE: _WORKERS,
    Check.WORKER_BACKLOG: _WORKERS,
    Check.TOPOLOGY: _TOPOLOGY,
    Check.CANARY: _TOPOLOGY,
}
_ACTIONS = {Check.BRAKE: "Releasing it"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownDiagnosis:
    state: State
    word: str
    headline: str
    """A sentence in plain English, with since when."""
    title: str
    """The details, after the component and the check."""
    kind: str
    since: str | None
    evidence: Sequence[str]
    next_step: str | None
    command: str
    runbook: str | None
    runbook_link: str | None
    """None: the setting does not say where the runbook is; then its page is named."""
    page: tuple[str, str] | None
    """Where of these pages more is to be seen, or done."""
    action: str | None
    """What is done there, which only the role operate may; None: it is only to be seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    state: State
    title: str
    """Also the title of the page, by which the right tab is found."""
    fine: str | None = None
    """Components without a problem, in a sentence."""
    worst: ShownDiagnosis | None = None
    """None: nothing is wrong, or no observation has been made yet."""
    problems: Sequence[ShownDiagnosis] = ()
    """The other problems."""
    unknowns: Sequence[ShownDiagnosis] = ()
    """Checks that could not be completed."""
    checks: Sequence[ShownDiagnosis] = ()
    """All checks."""

    @property
    def shown_evidence(self) -> Sequence[str]:
        return self.worst.evidence[:_EVIDENCE_SHOWN] if self.worst else ()

    @property
    def more_evidence(self) -> Sequence[str]:
        return self.worst.evidence[_EVIDENCE_SHOWN:] if self.worst else ()


def headline(
    diagnoses: Sequence[Diagnosis],
    *,
    now: datetime,
    link: Callable[[str], str | None],
    nothing: str = "Unknown: no observation has been made yet.",
) -> Headline:
    """`diagnoses` come with the worst first. `link`: from a page of the runbook to its address."""
    if not diagnoses:
        return Headline(state=State.UNKNOWN, title=nothing)
    shown = [shown_diagnosis(one, now=now, link=link) for one in diagnoses]
    if conclusion_of(diagnoses) is Health.OK:
        return Headline(state=State.OK, title="All is well.", fine=_fine_parts(diagnoses), checks=shown)
    worst, *others = shown
    return Headline(
        state=worst.state,
        title=worst.headline,
        fine=_fine_parts(diagnoses),
        worst=worst,
        problems=[one for one in others if one.state in (State.BAD, State.WARN)],
        unknowns=[one for one in others if one.state is State.UNKNOWN],
        checks=shown,
    )


def shown_diagnosis(
    diagnosis: Diagnosis, *, now: datetime, link: Callable[[str], str | None]
) -> ShownDiagnosis:
    since = None if diagnosis.since is None else moment(diagnosis.since, now)
    return ShownDiagnosis(
        state=state_of(diagnosis),
        headline=_sentence(diagnosis, since),
        word=diagnosis.health.value,
        title=with_full_stop(f"{COMPONENTS[diagnosis.component]}: {_after_part(diagnosis)}"),
        kind=diagnosis.check.value,
        since=since,
        evidence=[with_full_stop(one) for one in diagnosis.evidence],
        next_step=None if diagnosis.action is None else with_full_stop(diagnosis.action),
        command=diagnosis.command,
        runbook=diagnosis.runbook,
        runbook_link=None if diagnosis.runbook is None else link(diagnosis.runbook),
        page=None if diagnosis.health is Health.OK else _page_of(diagnosis),
        action=None if diagnosis.health is Health.OK else _ACTIONS.get(diagnosis.check),
    )


def _sentence(diagnosis: Diagnosis, since: str | None) -> str:
    text = diagnosis.headline
    return f"{text} since {since} UTC." if since else f"{text}."


def _page_of(diagnosis: Diagnosis) -> tuple[str, str] | None:
    if diagnosis.check != Check.UNUSABLE_LETTERS:
        return _PAGES.get(diagnosis.check)
    outcome = diagnosis.outcome or "unreadable"
    return f"/letters?outcome={outcome}", f"{outcome.capitalize()} letters"


def _after_part(diagnosis: Diagnosis) -> str:
    """With the name of the check, unless the sentence begins with it, or it is the component itself."""
    is_plain = diagnosis.component is Component.WORKERS or diagnosis.check in (
        diagnosis.component.value,
        Check.REPLICAS,
        Check.SERVICES,
    )
    return diagnosis.explanation if is_plain else f"{diagnosis.check.value}: {diagnosis.explanation}"


def _fine_parts(diagnoses: Sequence[Diagnosis]) -> str | None:
    """Components without a problem and without an unknown check."""
    seen = {one.component for one in diagnoses}
    ill = {one.component for one in diagnoses if one.health is not Health.OK}
    fine = [name for part, name in _FINE.items() if part in seen - ill]
    if not fine:
        return None
    return sentence(f"{joined(fine)} {'is' if len(fine) == 1 else 'are'} fine")
