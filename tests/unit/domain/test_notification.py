"""When a webhook is told: a table of what is, what was told before, and what that makes to be told now."""

from collections.abc import Mapping
from datetime import datetime, timedelta

import pytest

from dlq_handler.domain.diagnose import diagnose
from dlq_handler.domain.diagnosis import BRAKE, GATE, SHADOW, Diagnosis, diagnosed
from dlq_handler.domain.notification import Told, changes, told_by, unclear
from dlq_handler.domain.observation import Health
from dlq_handler.domain.webhook_message import Sender, message, rehearsal
from tests.support.views import NOW, a_view, a_worker

OK, PROBLEM, CANNOT_TELL = Health.OK, Health.PROBLEM, Health.CANNOT_TELL
COOLDOWN = 300.0


def brake(health: Health) -> Diagnosis:
    match health:
        case Health.OK:
            return diagnosed(BRAKE.ok("not tripped"))
        case Health.PROBLEM:
            return diagnosed(BRAKE.problem("holds", "release it"), since=NOW)
        case Health.CANNOT_TELL:
            return diagnosed(BRAKE.cannot_tell("nobody knows", "mend the database"))


def told(health: Health, *, seconds_ago: float) -> dict[str, Told]:
    at = NOW - timedelta(seconds=seconds_ago)
    return {"brake": Told(kind="brake", health=health, sentence="as it was", at=at)}


def due(
    now_is: Health, before: Mapping[str, Told], *, unclear_since: Mapping[str, datetime] | None = None
) -> list[tuple[Health, Health]]:
    found = changes(
        [brake(now_is), diagnosed(GATE.ok("open"))],
        before,
        unclear_since=unclear_since or {},
        now=NOW,
        cooldown_seconds=COOLDOWN,
    )
    return [(one.was, one.diagnosis.health) for one in found]


@pytest.mark.parametrize(
    ("now_is", "before", "expected"),
    [
        (OK, {}, []),
        (PROBLEM, {}, [(OK, PROBLEM)]),
        (PROBLEM, told(OK, seconds_ago=301), [(OK, PROBLEM)]),
        (PROBLEM, told(PROBLEM, seconds_ago=10_000), []),
        (OK, told(PROBLEM, seconds_ago=301), [(PROBLEM, OK)]),
        # It comes and goes: the first word holds until the cooldown is over, and then what is true is told.
        (OK, told(PROBLEM, seconds_ago=299), []),
        (PROBLEM, told(OK, seconds_ago=299), []),
        # The clock was set back.
        (OK, told(PROBLEM, seconds_ago=-86_400), [(PROBLEM, OK)]),
        # Out of sight is not over.
        (CANNOT_TELL, told(PROBLEM, seconds_ago=10_000), []),
        (OK, told(CANNOT_TELL, seconds_ago=301), [(CANNOT_TELL, OK)]),
        (PROBLEM, told(CANNOT_TELL, seconds_ago=301), [(CANNOT_TELL, PROBLEM)]),
    ],
)
def test_what_is_told(now_is: Health, before: dict[str, Told], expected: list[tuple[Health, Health]]) -> None:
    assert due(now_is, before) == expected


@pytest.mark.parametrize(("unclear_seconds", "is_told"), [(0, False), (299, False), (300, True)])
def test_what_cannot_be_told_is_news_only_when_it_lasts(unclear_seconds: float, is_told: bool) -> None:
    since = {"brake": NOW - timedelta(seconds=unclear_seconds)}

    assert bool(due(CANNOT_TELL, {}, unclear_since=since)) is is_told


def test_a_problem_that_is_out_of_sight_is_not_over_however_long() -> None:
    since = {"brake": NOW - timedelta(days=1)}

    assert due(CANNOT_TELL, told(PROBLEM, seconds_ago=86_400), unclear_since=since) == []


def test_since_when_it_cannot_be_told_is_kept_and_forgotten_when_it_can() -> None:
    later = NOW + timedelta(seconds=60)
    first = unclear([brake(CANNOT_TELL)], {}, now=NOW)

    assert first == {"brake": NOW}
    assert unclear([brake(CANNOT_TELL)], first, now=later) == {"brake": NOW}
    assert unclear([brake(PROBLEM)], first, now=later) == {}


def test_what_was_told_is_not_told_again() -> None:
    diagnoses = [brake(PROBLEM), diagnosed(SHADOW.problem("copies are judged", "switch it off"))]
    first = changes(diagnoses, {}, unclear_since={}, now=NOW, cooldown_seconds=0)
    noted = {one.kind: one for one in told_by(first, at=NOW)}

    assert [one.diagnosis.kind for one in first] == ["brake", "shadow"]
    assert changes(diagnoses, noted, unclear_since={}, now=NOW, cooldown_seconds=0) == ()


GONE = diagnose(
    a_view(workers=(a_worker(name="python", silent_seconds=1920, queue=None, ended_last_hour=611),))
)
WELL = diagnose(a_view())
SENDER = Sender(instance="one", environment="production", dashboard_url="https://dlq.example")


def test_a_message_says_it_in_lines_for_people_and_in_fields_for_programs() -> None:
    changed = changes(GONE, {}, unclear_since={}, now=NOW, cooldown_seconds=COOLDOWN)
    said = message(changed, GONE, at=NOW, sender=SENDER)

    assert (said["event"], said["conclusion"], said["at"]) == ("changed", "problem", "2026-03-01T03:00:00Z")
    assert (said["environment"], said["instance"]) == ("production", "one")
    assert said["dashboard_url"] == "https://dlq.example/?at=2026-03-01T03:00:00Z"
    lines = str(said["text"]).splitlines()
    assert lines[0] == f"[production] dlq-handler: {len(changed)} new problem(s), {len(changed)} in all"
    assert any(
        line.startswith("✕ problem: workers: worker gone: python (7) has been gone for 32 min")
        for line in lines
    )
    assert lines[-1] == said["dashboard_url"]
    listed = said["changes"]
    assert isinstance(listed, list)
    [gone] = [one for one in listed if one["kind"] == "worker gone"]
    assert (gone["part"], gone["health"], gone["was"]) == ("workers", "problem", "ok")
    assert gone["since"] == "2026-03-01T02:28:00Z"
    assert gone["runbook"] == "docs/runbook.md#worker-gone"


def test_a_recovery_is_called_one_and_says_what_is_left() -> None:
    before = {
        one.kind: one
        for one in told_by(changes(GONE, {}, unclear_since={}, now=NOW, cooldown_seconds=0), at=NOW)
    }
    over = changes(WELL, before, unclear_since={}, now=NOW, cooldown_seconds=0)
    said = message(over, WELL, at=NOW, sender=Sender(instance="one", runbook_url="https://wiki.example/book"))

    assert {one.diagnosis.kind for one in over} == set(before)
    assert said["event"] == "recovered"
    assert str(said["text"]).startswith("dlq-handler: recovered, all is well\n✓ recovered: ")
    assert said["dashboard_url"] is None
    listed = said["changes"]
    assert isinstance(listed, list)
    assert {one["runbook"].partition("#")[0] for one in listed} == {"https://wiki.example/book"}
    in_part = message(over[:1], GONE, at=NOW, sender=SENDER)
    assert "recovered in part, " in str(in_part["text"])


def test_a_rehearsal_has_the_same_fields_and_tells_of_nothing() -> None:
    real = message((), WELL, at=NOW, sender=SENDER)
    rehearsed = rehearsal(at=NOW, sender=SENDER, by="ann@host")

    assert rehearsed.keys() == real.keys()
    assert (rehearsed["event"], rehearsed["changes"]) == ("test", [])
    assert "sent by ann@host" in str(rehearsed["text"])
