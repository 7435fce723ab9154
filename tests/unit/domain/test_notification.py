"""When a webhook is told: a table of what is, what was told before, and what that makes to be told now."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from dlq_handler.domain.diagnose import diagnose
from dlq_handler.domain.diagnosis import BRAKE, GATE, SHADOW, Diagnosis, diagnosed
from dlq_handler.domain.judge_canary import CanaryState
from dlq_handler.domain.notification import Told, changes, told_by, unclear
from dlq_handler.domain.observation import Health
from dlq_handler.domain.view import BrokerSeen, DatabaseSeen, Unknown, Unsure
from dlq_handler.domain.webhook_message import Sender, message, rehearsal
from tests.support.views import NOW, a_canary, a_view, a_worker

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


AWAY = {
    "database": a_view(
        database=DatabaseSeen(trouble="connection refused"),
        **dict.fromkeys(
            ("tables", "rights", "brake", "leader", "outbox", "workers", "letters", "canaries"),
            Unknown("the database does not answer"),
        ),
    ),
    "broker": a_view(
        broker=BrokerSeen(trouble="connection refused"),
        workers=(a_worker(queue=Unknown("the broker does not answer")),),
        **dict.fromkeys(
            ("alarms", "topology", "intake", "canaries", "completions", "requests"),
            Unknown("the broker does not answer"),
        ),
    ),
}


@pytest.mark.parametrize("server", AWAY)
def test_what_cannot_be_told_because_a_server_is_away_is_no_news(server: str) -> None:
    seen = diagnose(AWAY[server])
    doubts = [one for one in seen if one.health is CANNOT_TELL]
    before = unclear(seen, {}, now=NOW - timedelta(days=1))
    found = changes(seen, {}, unclear_since=before, now=NOW, cooldown_seconds=0)

    assert len(doubts) >= 8
    assert server in {one.diagnosis.kind for one in found}
    assert all(one.diagnosis.health is PROBLEM for one in found)


def test_a_doubt_of_its_own_is_told_while_a_server_is_away_and_after_it() -> None:
    away = replace(AWAY["database"], alarms=Unknown("401"))
    seen, back = diagnose(away), diagnose(a_view(brake=Unknown("permission denied")))
    before = unclear(seen, {}, now=NOW - timedelta(seconds=COOLDOWN))
    found = changes(seen, {}, unclear_since=before, now=NOW, cooldown_seconds=COOLDOWN)

    assert [one.diagnosis.kind for one in found if one.diagnosis.health is CANNOT_TELL] == ["broker alarm"]
    assert unclear(back, before, now=NOW) == {"brake": NOW}, "its time begins when the server is back"


# What nobody has to mend: a canary that is not due yet, a gate that is about to look, heartbeats that were not watched
# for long enough.
SOON: dict[str, Any] = {
    "canaries": (replace(a_canary(CanaryState.CANNOT_TELL), passes=True),),
    "gate": Unsure("it has not looked at the database yet"),
    "workers": (a_worker(silent_seconds=600, watched_seconds=1, queue=None),),
}
SOON_TOLD = ["gate", "canary", "workers", "worker gone"]


def test_what_is_about_to_be_told_is_no_news_while_a_server_is_away() -> None:
    seen = diagnose(replace(AWAY["broker"], **SOON))

    assert [one.kind for one in seen if one.kind in SOON_TOLD and one.health is CANNOT_TELL] == SOON_TOLD
    assert unclear(seen, {}, now=NOW) == {}


@pytest.mark.parametrize(
    ("seconds", "cooldown_seconds", "expected"), [(299, 300, []), (300, 300, SOON_TOLD), (0, 0, SOON_TOLD)]
)
def test_what_is_about_to_be_told_is_news_only_when_that_takes_a_whole_cooldown(
    seconds: float, cooldown_seconds: float, expected: list[str]
) -> None:
    seen = diagnose(a_view(**SOON))
    since = unclear(seen, {}, now=NOW - timedelta(seconds=seconds))
    found = changes(seen, {}, unclear_since=since, now=NOW, cooldown_seconds=cooldown_seconds)

    assert [one.diagnosis.kind for one in found] == expected
    assert not any("mend" in (one.diagnosis.next_step or "") for one in found)


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


def test_that_all_workers_are_gone_is_told_at_once_though_one_of_them_was_just_told_of() -> None:
    gone = a_worker(silent_seconds=1920, queue=None)
    one_gone = diagnose(a_view(workers=(gone, a_worker(number=8), a_worker(number=9))))
    two_gone = diagnose(a_view(workers=(gone, a_worker(number=8, silent_seconds=1920), a_worker(number=9))))
    all_gone = diagnose(a_view(workers=(gone, a_worker(number=8, silent_seconds=1920, queue=None))))
    first = changes(one_gone, {}, unclear_since={}, now=NOW, cooldown_seconds=COOLDOWN)
    noted = {one.kind: one for one in told_by(first, at=NOW)}
    soon = NOW + timedelta(seconds=10)
    second, last = (
        changes(seen, noted, unclear_since={}, now=soon, cooldown_seconds=COOLDOWN)
        for seen in (two_gone, all_gone)
    )

    assert "worker gone" in noted
    assert "workers" not in noted
    assert "workers" not in {one.diagnosis.kind for one in second}
    assert [one.diagnosis.kind for one in last] == ["workers"]
    said = str(message(last, all_gone, at=soon, sender=SENDER)["text"])
    assert "✕ problem: workers: all 2 have been gone for 27 min" in said


def gone_of(*numbers: int, silent_seconds: float = 1920) -> tuple[Diagnosis, ...]:
    """Three workers, of which these are gone."""
    return diagnose(
        a_view(
            workers=tuple(
                a_worker(number=number, silent_seconds=silent_seconds, queue=None)
                if number in numbers
                else a_worker(number=number)
                for number in (7, 8, 9)
            )
        )
    )


def noted_of(diagnoses: tuple[Diagnosis, ...]) -> dict[str, Told]:
    first = changes(diagnoses, {}, unclear_since={}, now=NOW, cooldown_seconds=COOLDOWN)
    return {one.kind: one for one in told_by(first, at=NOW)}


@pytest.mark.parametrize(
    ("before", "now_is", "seconds_later", "is_told"),
    [
        (gone_of(7), gone_of(8), 301, True),
        (gone_of(7), gone_of(7, 8), 301, True),
        (gone_of(7, 8), gone_of(7), 301, True),
        # However many go within one cooldown: one message.
        (gone_of(7), gone_of(7, 8), 299, False),
        # Its numbers are others with every look.
        (gone_of(7), gone_of(7, silent_seconds=5000), 301, False),
    ],
)
def test_that_others_are_gone_is_told_after_the_cooldown(
    before: tuple[Diagnosis, ...], now_is: tuple[Diagnosis, ...], seconds_later: float, is_told: bool
) -> None:
    later = NOW + timedelta(seconds=seconds_later)
    found = changes(now_is, noted_of(before), unclear_since={}, now=later, cooldown_seconds=COOLDOWN)

    assert [(one.diagnosis.kind, one.was) for one in found] == ([("worker gone", PROBLEM)] if is_told else [])


def test_a_problem_of_others_is_called_changed_and_not_new() -> None:
    now_is = (*gone_of(8), brake(PROBLEM))
    others = changes(gone_of(8), noted_of(gone_of(7)), unclear_since={}, now=NOW, cooldown_seconds=0)
    both = changes(now_is, noted_of(gone_of(7)), unclear_since={}, now=NOW, cooldown_seconds=0)
    said = message(others, gone_of(8), at=NOW, sender=Sender(instance="one"))

    lines = str(said["text"]).splitlines()
    assert lines[0] == "dlq-handler: 1 changed problem(s), 1 in all"
    assert lines[1].startswith("✕ changed: workers: worker gone: worker-python (8) has been gone for 27 min")
    assert (said["event"], said["conclusion"]) == ("changed", "problem")
    headline = str(message(both, now_is, at=NOW, sender=Sender(instance="one"))["text"]).splitlines()[0]
    assert headline == "dlq-handler: 1 new problem(s), 1 changed problem(s), 2 in all"


def test_a_message_says_it_in_lines_for_people_and_in_fields_for_programs() -> None:
    changed = changes(GONE, {}, unclear_since={}, now=NOW, cooldown_seconds=COOLDOWN)
    said = message(changed, GONE, at=NOW, sender=SENDER)

    assert (said["event"], said["conclusion"], said["at"]) == ("changed", "problem", "2026-03-01T03:00:00Z")
    assert (said["environment"], said["instance"]) == ("production", "one")
    assert said["dashboard_url"] == "https://dlq.example/?at=2026-03-01T03:00:00Z"
    lines = str(said["text"]).splitlines()
    assert lines[0] == f"[production] dlq-handler: {len(changed)} new problem(s), {len(changed)} in all"
    assert any(
        line.startswith("✕ problem: workers: worker gone: python (7) has been gone for 27 min")
        and line.endswith(" (since 02:33:00Z)")
        for line in lines
    )
    next_day = message(changed, GONE, at=NOW + timedelta(days=1), sender=SENDER)
    assert " (since 2026-03-01 02:33:00Z)\n" in str(next_day["text"])
    assert lines[-1] == said["dashboard_url"]
    listed = said["changes"]
    assert isinstance(listed, list)
    [gone] = [one for one in listed if one["kind"] == "worker gone"]
    assert (gone["part"], gone["health"], gone["was"]) == ("workers", "problem", "ok")
    assert gone["since"] == "2026-03-01T02:33:00Z"
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
