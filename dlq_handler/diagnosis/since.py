"""What one look adds to the diagnoses before it: since when, and whether that is news. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from dlq_handler.diagnosis.diagnosis import SLIDING, Diagnosis
from dlq_handler.diagnosis.observation import Health

# Sentences have numbers in them. While something is wrong they are put on record so often, and not with every look.
REFRESHED_AFTER = timedelta(minutes=5)


def ill_since(diagnoses: Sequence[Diagnosis]) -> dict[str, datetime]:
    """Of each kind that is a problem, since when."""
    return {one.kind: one.since for one in diagnoses if one.health is Health.PROBLEM and one.since}


def dated(
    diagnoses: Sequence[Diagnosis], before: Mapping[str, datetime], *, at: datetime
) -> tuple[tuple[Diagnosis, ...], dict[str, datetime]]:
    """Each problem with the time since when it is one, and what the next look has to know of that.

    Where nothing says when it began, it began when it was first seen. That nobody can tell any more ends no problem: a
    database that is away for a minute would make each of them a minute old.
    """
    whole: list[Diagnosis] = []
    remembered: dict[str, datetime] = {}
    for one in diagnoses:
        if one.health is Health.PROBLEM:
            since = _since(one, before) or at
            remembered[one.kind] = since
            whole.append(replace(one, since=since))
            continue
        if one.health is Health.UNKNOWN and one.kind in before:
            remembered[one.kind] = before[one.kind]
        whole.append(one)
    return tuple(whole), remembered


def recalled(diagnoses: Sequence[Diagnosis], before: Mapping[str, datetime]) -> tuple[Diagnosis, ...]:
    """Each problem with the time on record. For who looks once: what he sees first may have begun long before."""
    return tuple(
        replace(one, since=_since(one, before)) if one.health is Health.PROBLEM else one for one in diagnoses
    )


def is_change(before: Sequence[Diagnosis] | None, now: Sequence[Diagnosis]) -> bool:
    """Another health of anything. None: there is nothing to compare with."""
    return before is None or _healths(before) != _healths(now)


def is_due(
    before: Sequence[Diagnosis], recorded_at: datetime, now: Sequence[Diagnosis], at: datetime
) -> bool:
    """The same illnesses, but in words that are too old to show to anybody."""
    is_ill = any(one.health is Health.PROBLEM for one in now)
    return is_ill and at - recorded_at >= REFRESHED_AFTER and list(before) != list(now)


def _healths(diagnoses: Sequence[Diagnosis]) -> dict[str, Health]:
    return {one.kind: one.health for one in diagnoses}


def _since(one: Diagnosis, before: Mapping[str, datetime]) -> datetime | None:
    """What a look knows of it is better than what is remembered, unless that moves on with every look."""
    known = before.get(one.kind)
    if one.since and known and one.kind in SLIDING:
        return min(one.since, known)
    return one.since or known
