"""What one observation adds to the diagnoses before it: since when, and whether that is a change. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from dlq_handler.diagnosis.checks import INFOS, Check
from dlq_handler.diagnosis.diagnosis import Diagnosis, Health

# Explanations have numbers in them. While something is wrong they are put on record this often, and not every time.
REFRESHED_AFTER = timedelta(minutes=5)

Beginnings = Mapping[Check, datetime]
"""When each problem began."""


def beginnings_of(diagnoses: Sequence[Diagnosis]) -> dict[Check, datetime]:
    return {one.check: one.since for one in diagnoses if one.health is Health.PROBLEM and one.since}


def dated(
    diagnoses: Sequence[Diagnosis], before: Beginnings, *, at: datetime
) -> tuple[tuple[Diagnosis, ...], dict[Check, datetime]]:
    """Each problem with its beginning, and what the next observation has to know of that.

    Where no fact says when it began, it began with the first observation of it. An unknown result ends no problem: a
    database that is unavailable for a minute would make each of them a minute old.
    """
    whole: list[Diagnosis] = []
    remembered: dict[Check, datetime] = {}
    for one in diagnoses:
        if one.health is Health.PROBLEM:
            since = _since(one, before) or at
            remembered[one.check] = since
            whole.append(replace(one, since=since))
            continue
        if one.health is Health.UNKNOWN and one.check in before:
            remembered[one.check] = before[one.check]
        whole.append(one)
    return tuple(whole), remembered


def with_beginnings(diagnoses: Sequence[Diagnosis], before: Beginnings) -> tuple[Diagnosis, ...]:
    """Each problem with the beginning on record. For a command, which observes once: a problem may be older."""
    return tuple(
        replace(one, since=_since(one, before)) if one.health is Health.PROBLEM else one for one in diagnoses
    )


def is_change(before: Sequence[Diagnosis] | None, now: Sequence[Diagnosis]) -> bool:
    """Another health of any check. None: there is nothing to compare with."""
    return before is None or _healths(before) != _healths(now)


def is_due(
    before: Sequence[Diagnosis], recorded_at: datetime, now: Sequence[Diagnosis], at: datetime
) -> bool:
    """The same problems, but with numbers that are too old to be shown."""
    has_problem = any(one.health is Health.PROBLEM for one in now)
    return has_problem and at - recorded_at >= REFRESHED_AFTER and list(before) != list(now)


def _healths(diagnoses: Sequence[Diagnosis]) -> dict[Check, Health]:
    return {one.check: one.health for one in diagnoses}


def _since(one: Diagnosis, before: Beginnings) -> datetime | None:
    """The time of a fact is better than the remembered one, unless it moves on with every observation."""
    known = before.get(one.check)
    if one.since and known and INFOS[one.check].is_dated_by_oldest_item:
        return min(one.since, known)
    return one.since or known
