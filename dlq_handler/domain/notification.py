"""What to tell the webhook, and when. Pure: diagnoses and what was told already in, changes out; `now` is given.

It compares what is with what was last told, so that nothing is told twice, by whichever replica, and the last word
is always true. Promises: a problem is told at once, its end too, and nothing more of its kind within the cooldown; then
also that the same problem is about others by now.
Never: takes what cannot be told for a recovery, or for news while a server that was told of is away.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from dlq_handler.domain import doctor_broker, doctor_database
from dlq_handler.domain.diagnose_fleet import WATCH_ON
from dlq_handler.domain.diagnose_us import LOOKS_AGAIN
from dlq_handler.domain.diagnosis import Diagnosis
from dlq_handler.domain.doctor import MEND_FIRST, NEXT_CANARY
from dlq_handler.domain.observation import Health

_SERVERS = (doctor_database.DATABASE.check, doctor_broker.BROKER.check)
# Nobody can tell while a server is away, or in the moments after that.
_FOLLOWS = (MEND_FIRST, LOOKS_AGAIN, NEXT_CANARY, WATCH_ON)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The last that was said of one kind, and when, by the database's clock."""

    kind: str
    health: Health
    sentence: str
    at: datetime
    about: str = ""
    """As the diagnosis had it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    diagnosis: Diagnosis
    was: Health
    """What was told before; ok if nothing was."""

    @property
    def is_recovery(self) -> bool:
        return self.diagnosis.health is Health.OK

    @property
    def is_about_others(self) -> bool:
        """The problem that was told, of other workers: no new one, and not over."""
        return self.diagnosis.health is self.was


def changes(
    diagnoses: Iterable[Diagnosis],
    told: Mapping[str, Told],
    *,
    unclear_since: Mapping[str, datetime],
    now: datetime,
    cooldown_seconds: float,
) -> tuple[Change, ...]:
    """What has to be told now. `unclear_since`: what `unclear` says of the same diagnoses."""
    found = []
    for one in diagnoses:
        before = told.get(one.kind)
        was = Health.OK if before is None else before.health
        # Sentences are not compared: their numbers are other ones with every look.
        is_told = one.health is was and (before is None or one.about == before.about)
        if is_told or (before is not None and _is_recent(before, now, cooldown_seconds)):
            continue
        if one.health is Health.CANNOT_TELL:
            since = unclear_since.get(one.kind)
            if since is None or not _is_news(was, (now - since).total_seconds(), cooldown_seconds):
                continue
        found.append(Change(diagnosis=one, was=was))
    return tuple(found)


def _is_recent(before: Told, now: datetime, cooldown_seconds: float) -> bool:
    # Not what lies ahead: a clock that was set back by a day must not silence us for one.
    return 0 <= (now - before.at).total_seconds() < cooldown_seconds


def _is_news(was: Health, lasted_seconds: float, cooldown_seconds: float) -> bool:
    """That something cannot be told. A problem that is out of sight is still the problem that was told; and one answer
    that came too late is no news, while a question that nobody can answer for minutes is.
    """
    return was is not Health.PROBLEM and lasted_seconds >= cooldown_seconds


def unclear(
    diagnoses: Iterable[Diagnosis], before: Mapping[str, datetime], *, now: datetime
) -> dict[str, datetime]:
    """Since when each kind cannot be told for a reason of its own; whoever can be told again is forgotten.

    What follows from a server that is away is not counted: that server is the news, and what nobody can see without it
    was just as well before. When the server is back their time begins, because a look at everything takes a while.
    """
    seen = tuple(diagnoses)
    is_server_ill = any(one.kind in _SERVERS and one.health is Health.PROBLEM for one in seen)
    return {
        one.kind: before.get(one.kind, now)
        for one in seen
        if one.health is Health.CANNOT_TELL and not (is_server_ill and one.next_step in _FOLLOWS)
    }


def told_by(changed: Sequence[Change], *, at: datetime) -> tuple[Told, ...]:
    return tuple(
        Told(
            kind=one.diagnosis.kind,
            health=one.diagnosis.health,
            sentence=one.diagnosis.sentence,
            at=at,
            about=one.diagnosis.about,
        )
        for one in changed
    )
