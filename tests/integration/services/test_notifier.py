"""The webhook is told of changes once, by one replica, until it took them: a real receiver, a real database."""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest
import structlog
from structlog.testing import LogCapture

from dlq_handler.clock import monotonic_seconds
from dlq_handler.domain.diagnose import diagnose
from dlq_handler.domain.diagnosis import Diagnosis
from dlq_handler.domain.view import DatabaseSeen
from dlq_handler.domain.webhook_message import Sender
from dlq_handler.errors import Unavailable
from dlq_handler.services import notifier as module
from dlq_handler.services.leadership import Leadership, LeadershipPolicy
from dlq_handler.services.notifier import Notifier, NotifierPolicy
from dlq_handler.services.observer import Observer
from dlq_handler.services.webhook import Webhook, WebhookFailed
from dlq_handler.store import mute
from dlq_handler.store.engine import Database
from tests.support.hook import Hook, a_hook
from tests.support.tcp_proxy import TcpProxy
from tests.support.views import a_brake, a_view, a_worker, ago

WELL = diagnose(a_view())
BRAKED = diagnose(a_view(brake=a_brake(tripped_at=ago(60))))
DATABASE_AWAY = diagnose(a_view(database=DatabaseSeen(trouble="connection refused")))
GONE: dict[str, Any] = {"silent_seconds": 1920, "queue": None}
BRAKE_PROBLEM, BRAKE_OK = [("brake", "problem")], [("brake", "ok")]


class Heard(Observer):
    def __init__(self) -> None:
        self.delivered: list[bool] = []

    def notified(self, *, is_delivered: bool) -> None:
        self.delivered.append(is_delivered)


class Replica:
    """One notifier, and what its diagnoser says."""

    def __init__(self, store: Database, hook: Hook, name: str, **policy: float) -> None:
        self.heard = Heard()
        self.diagnoses: Sequence[Diagnosis] | None = WELL
        self.leadership = Leadership(store, LeadershipPolicy(name="leader"), holder=name, observer=Observer())
        self.notifier = Notifier(
            store,
            Webhook(hook.url, authorization="Bearer T0KEN", timeout_seconds=5),
            NotifierPolicy(cooldown_seconds=policy.get("cooldown_seconds", 0)),
            diagnoses=lambda: self.diagnoses,
            leadership=self.leadership,
            sender=Sender(instance=name),
            observer=self.heard,
        )

    async def sees(self, diagnoses: Sequence[Diagnosis] | None) -> None:
        self.diagnoses = diagnoses
        await self.notifier.tick()


class Clock:
    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return self._real() + self.ahead

    _real = staticmethod(monotonic_seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Of the notifier alone, and it can be set forward."""
    ours = Clock()
    monkeypatch.setattr(module, "monotonic_seconds", ours)
    return ours


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def hook() -> Iterator[Hook]:
    with a_hook() as hook:
        yield hook


@pytest.fixture
async def a_leader(store: Database, hook: Hook) -> Replica:
    leader = Replica(store, hook, "one")
    await leader.leadership.tick()
    return leader


@pytest.fixture
def log() -> Iterator[LogCapture]:
    capture, before = LogCapture(), structlog.get_config()
    structlog.configure(processors=[capture], cache_logger_on_first_use=False)
    yield capture
    structlog.configure(**before)


async def test_a_problem_and_its_end_are_told_once_each(a_leader: Replica, hook: Hook) -> None:
    for seen in (None, WELL, BRAKED, BRAKED, WELL, WELL):
        await a_leader.sees(seen)

    assert hook.kinds == [BRAKE_PROBLEM, BRAKE_OK]
    assert [message["event"] for message in hook.heard] == ["changed", "recovered"]
    assert hook.headers[0]["Authorization"] == "Bearer T0KEN"
    assert hook.headers[0]["Content-Type"] == "application/json"
    assert a_leader.heard.delivered == [True, True]


async def test_only_the_leader_tells_and_the_next_one_does_not_repeat_it(
    store: Database, a_leader: Replica, hook: Hook
) -> None:
    other = Replica(store, hook, "two")
    await other.leadership.tick()
    await other.sees(BRAKED)
    assert hook.heard == []
    await a_leader.sees(BRAKED)

    await a_leader.leadership._give_up()  # as `run` does at its end
    await other.leadership.tick()
    await other.sees(BRAKED)
    await other.sees(WELL)

    assert [message["instance"] for message in hook.heard] == ["one", "two"]
    assert hook.kinds == [BRAKE_PROBLEM, BRAKE_OK]


async def test_what_comes_and_goes_is_told_once_and_the_last_word_is_true(
    store: Database, hook: Hook
) -> None:
    leader = Replica(store, hook, "one", cooldown_seconds=300)
    await leader.leadership.tick()
    for seen in (BRAKED, WELL, BRAKED, WELL):
        await leader.sees(seen)
    assert hook.kinds == [BRAKE_PROBLEM]

    async with store.transaction() as tx:
        await tx.run("UPDATE own.notified SET at = at - interval '300 s'")
    await leader.sees(WELL)

    assert hook.kinds == [BRAKE_PROBLEM, BRAKE_OK]


async def test_that_another_worker_is_gone_by_now_is_told_after_the_cooldown_also_by_the_next_leader(
    store: Database, hook: Hook
) -> None:
    one, other = (Replica(store, hook, name, cooldown_seconds=300) for name in ("one", "two"))
    await one.leadership.tick()
    python_gone, shell_gone = (
        diagnose(
            a_view(
                workers=(
                    a_worker(number=7, **python, name="python"),
                    a_worker(number=8, **shell, name="shell"),
                )
            )
        )
        for python, shell in ((GONE, {}), ({}, GONE))
    )
    await one.sees(python_gone)
    await one.sees(shell_gone)
    assert len(hook.heard) == 1, "not within the cooldown"

    await one.leadership._give_up()  # as `run` does at its end
    await other.leadership.tick()
    async with store.transaction() as tx:
        await tx.run("UPDATE own.notified SET at = at - interval '300 s'")
    await other.sees(shell_gone)
    await other.sees(shell_gone)

    assert hook.kinds == [[("worker gone", "problem")]] * 2
    assert "✕ changed: workers: worker gone: shell (8) has been gone" in hook.heard[-1]["text"]


async def test_the_last_worker_to_go_is_told_of_while_the_first_one_is_in_its_cooldown(
    store: Database, hook: Hook
) -> None:
    leader = Replica(store, hook, "one", cooldown_seconds=300)
    await leader.leadership.tick()
    gone = a_worker(silent_seconds=1920, queue=None)
    for other in (a_worker(number=8), a_worker(number=8, silent_seconds=1920, queue=None)):
        await leader.sees(diagnose(a_view(workers=(gone, other))))

    first, last = hook.kinds
    assert ("worker gone", "problem") in first
    assert last == [("workers", "problem")]


@pytest.mark.parametrize("answer", [500, 404, 302])
async def test_what_was_not_taken_is_told_again_after_a_growing_pause(
    a_leader: Replica, hook: Hook, clock: Clock, log: LogCapture, answer: int
) -> None:
    hook.answer = answer
    await a_leader.sees(BRAKED)
    await a_leader.sees(BRAKED)
    assert len(hook.heard) == 1, "not at once"
    clock.ahead = 6
    await a_leader.sees(BRAKED)
    hook.answer = 204
    clock.ahead = 20
    await a_leader.sees(BRAKED)
    await a_leader.sees(BRAKED)

    assert hook.kinds == [BRAKE_PROBLEM] * 3
    assert a_leader.heard.delivered == [False, False, True]
    failures = [entry for entry in log.entries if entry["event"] == "notification.failed"]
    assert failures[0]["error"] == f"answered {answer}"
    assert failures[1]["next_try_seconds"] > failures[0]["next_try_seconds"] * 0.9
    assert "S3CRET" not in str(log.entries)


async def test_a_receiver_that_does_not_answer_is_given_up_in_time_and_its_address_is_not_told(
    hook: Hook,
) -> None:
    hook.silent.set()
    with pytest.raises(WebhookFailed, match=r"^webhook: no answer within 0.2 s$"):
        await Webhook(hook.url, timeout_seconds=0.2).post({})
    with pytest.raises(WebhookFailed, match=r"^webhook: cannot be reached \(ConnectError\)$"):
        await Webhook("http://127.0.0.1:1/hooks/S3CRET").post({})


async def test_while_it_is_muted_nothing_is_told_and_afterwards_what_is_true(
    store: Database, a_leader: Replica, hook: Hook
) -> None:
    async with store.transaction() as tx:
        await mute.mute(tx, for_seconds=3600, reason="an upgrade", by="ann@host")
    await a_leader.sees(BRAKED)
    await a_leader.sees(WELL)
    await a_leader.sees(BRAKED)
    assert hook.heard == []

    async with store.transaction() as tx:
        await mute.unmute(tx)
    await a_leader.sees(BRAKED)

    assert hook.kinds == [BRAKE_PROBLEM]


@pytest.fixture
async def behind_proxy(database: str, store: Database) -> AsyncIterator[tuple[TcpProxy, Database]]:
    async with TcpProxy.to(database) as proxy:
        ours = Database(proxy.url, connect_timeout_seconds=2)
        yield proxy, ours
        await ours.dispose()


async def test_that_the_database_is_away_is_told_by_the_one_who_led_last(
    store: Database, hook: Hook, behind_proxy: tuple[TcpProxy, Database], clock: Clock
) -> None:
    proxy, ours = behind_proxy
    leader, other = Replica(ours, hook, "one"), Replica(ours, hook, "two")
    for replica in (leader, other):
        await replica.leadership.tick()
        await replica.sees(WELL)
    await proxy.refuse()
    clock.ahead = 600  # the lease is long over
    for replica in (leader, other, leader):
        await replica.sees(DATABASE_AWAY)

    assert [message["instance"] for message in hook.heard] == ["one"]
    assert ("database", "problem") in hook.kinds[0]

    await proxy.heal()
    await leader.sees(DATABASE_AWAY)
    rows = await noted(store)
    assert rows["database"] == "problem", "what it told from memory is noted, so that its end is told too"
    await leader.leadership.tick()
    await leader.sees(WELL)
    assert hook.heard[-1]["event"] == "recovered"
    assert len(hook.heard) == 2


async def noted(store: Database) -> dict[str, Any]:
    async with store.transaction() as tx:
        return {row.kind: row.health for row in await tx.rows("SELECT kind, health FROM own.notified")}


async def test_a_replica_that_was_never_told_anything_by_the_database_tells_nothing(
    hook: Hook, behind_proxy: tuple[TcpProxy, Database]
) -> None:
    proxy, ours = behind_proxy
    await proxy.refuse()
    with pytest.raises(Unavailable):
        await Replica(ours, hook, "one").sees(DATABASE_AWAY)

    assert hook.heard == []
