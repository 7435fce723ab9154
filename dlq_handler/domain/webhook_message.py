"""The message that a webhook gets: one JSON object for all that changed at once. Pure.

Its keys are public: whoever receives it may rely on them. `text` holds all of it in lines, under the key that chat
programs show. Promises: no payload of a letter and no secret, because no diagnosis holds any.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from dlq_handler.domain.diagnosis import Diagnosis, conclusion_of
from dlq_handler.domain.notification import Change
from dlq_handler.domain.observation import SIGNS, Health

Message = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """Who tells: messages of many deployments may end in one place."""

    instance: str
    environment: str | None = None
    dashboard_url: str | None = None
    runbook_url: str | None = None
    """Where the runbook can be read; None: the page is named."""

    @property
    def prefix(self) -> str:
        return f"[{self.environment}] dlq-handler: " if self.environment else "dlq-handler: "


def message(
    changed: Sequence[Change], diagnoses: Sequence[Diagnosis], *, at: datetime, sender: Sender
) -> Message:
    is_recovery = all(one.is_recovery for one in changed)
    return _message(
        event="recovered" if is_recovery else "changed",
        conclusion=conclusion_of(diagnoses).value,
        at=at,
        sender=sender,
        lines=[sender.prefix + _headline(changed, diagnoses), *_lines(changed, at)],
        changed=changed,
    )


def rehearsal(*, at: datetime, sender: Sender, by: str) -> Message:
    """Of the same shape, and tells of nothing: to see whether one arrives."""
    return _message(
        event="test",
        conclusion=None,
        at=at,
        sender=sender,
        lines=[f"{sender.prefix}a test message, sent by {by}; it tells of nothing"],
        changed=(),
    )


def _message(
    *,
    event: str,
    conclusion: str | None,
    at: datetime,
    sender: Sender,
    lines: Sequence[str],
    changed: Sequence[Change],
) -> Message:
    # As of then: whoever opens it in the morning wants to see the night.
    link = None if sender.dashboard_url is None else f"{sender.dashboard_url}/?at={_utc(at)}"
    return {
        "event": event,
        "conclusion": conclusion,
        "at": _utc(at),
        "environment": sender.environment,
        "instance": sender.instance,
        "dashboard_url": link,
        "text": "\n".join(lines if link is None else (*lines, link)),
        "changes": [_change(one, sender) for one in changed],
    }


def _headline(changed: Sequence[Change], diagnoses: Sequence[Diagnosis]) -> str:
    ill = sum(one.health is Health.PROBLEM for one in diagnoses)
    others = sum(one.is_about_others for one in changed)
    news = sum(one.diagnosis.health is Health.PROBLEM for one in changed) - others
    counts = ((news, f"{news} new problem(s)"), (others, f"{others} changed problem(s)"))
    if told := [words for count, words in counts if count]:
        return ", ".join((*told, f"{ill} in all"))
    if not all(one.is_recovery for one in changed):
        return f"something cannot be told; {ill} problem(s)"
    if ill:
        return f"recovered in part, {ill} problem(s) left"
    if conclusion_of(diagnoses) is Health.OK:
        return "recovered, all is well"
    return "recovered, no problem is left, and something cannot be told"


def _lines(changed: Sequence[Change], at: datetime) -> Iterator[str]:
    for one in changed:
        said = one.diagnosis
        word = "changed" if one.is_about_others else "recovered" if one.is_recovery else said.health.value
        since = "" if said.since is None else f" (since {_moment(said.since, at)})"
        yield f"{SIGNS[said.health]} {word}: {said.subject}: {said.said}{since}"
        if said.next_step is not None:
            yield f"    next: {said.next_step} (`{said.command}`)"


def _change(one: Change, sender: Sender) -> Message:
    said = one.diagnosis
    anchor = said.runbook.partition("#")[2]
    return {
        "kind": said.kind,
        "part": said.part.value,
        "health": said.health.value,
        "was": one.was.value,
        "sentence": said.sentence,
        "since": None if said.since is None else _utc(said.since),
        "evidence": list(said.evidence),
        "next_step": said.next_step,
        "command": said.command,
        "runbook": said.runbook if sender.runbook_url is None else f"{sender.runbook_url}#{anchor}",
    }


def _moment(when: datetime, at: datetime) -> str:
    """`02:26:04Z`, with its date unless that is the message's."""
    when, at = when.astimezone(UTC), at.astimezone(UTC)
    return f"{when:%H:%M:%SZ}" if when.date() == at.date() else f"{when:%Y-%m-%d %H:%M:%SZ}"


def _utc(when: datetime) -> str:
    return when.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
