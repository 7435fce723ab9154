"""Dead letters that are recorded undecided, and decided from the record, on stock Attune's tables."""

import pytest

from dlq_handler.domain.dead_letter import DeadLetter
from dlq_handler.domain.verdict import Outcome
from dlq_handler.domain.worker import WorkerQueueNames
from dlq_handler.errors import TooSlow
from dlq_handler.services.defer_letters import DeferPolicy, LetterDeferrer
from dlq_handler.services.observer import Observer
from dlq_handler.services.rejudge import Rejudger
from dlq_handler.store import letters
from dlq_handler.store.engine import Database
from tests.integration.store.host import Host
from tests.support.builders import a_dead_letter
from tests.support.judging import a_judge


class Counting(Observer):
    def __init__(self) -> None:
        self.judged: list[Outcome] = []
        self.rejudged: list[Outcome] = []

    def letter_judged(self, reason: str, outcome: Outcome, latency_seconds: float | None) -> None:
        self.judged.append(outcome)

    def letter_rejudged(self, outcome: Outcome) -> None:
        self.rejudged.append(outcome)


@pytest.fixture
def observer() -> Counting:
    return Counting()


@pytest.fixture
def deferrer(store: Database, observer: Counting) -> LetterDeferrer:
    policy = DeferPolicy(after_deliveries=5, instance="test", names=WorkerQueueNames())
    return LetterDeferrer(store, policy, observer=observer)


@pytest.fixture
def rejudger(store: Database, observer: Counting) -> Rejudger:
    return Rejudger(store, a_judge(store), None, observer=observer)


async def a_letter(host: Host, key: str) -> DeadLetter:
    execution_id = await host.add_execution()
    updated = (await host.execution(execution_id))["updated"]
    return a_dead_letter(
        key=key, execution_id=execution_id, stamp=updated, worker_id=None, redelivered=True, deliveries=5
    )


async def outcomes(host: Host) -> list[str]:
    rows = await host.session.fetch("SELECT outcome FROM dlq_handler.letter ORDER BY id")
    return [row["outcome"] for row in rows]


async def test_a_deferred_dead_letter_is_decided_from_its_record(
    host: Host, deferrer: LetterDeferrer, rejudger: Rejudger, observer: Counting
) -> None:
    letter = await a_letter(host, "k")
    await deferrer.record([letter])
    assert await outcomes(host) == ["deferred"]
    assert (await host.execution(letter.execution_id or 0))["status"] == "scheduled", "nothing is decided yet"

    await rejudger.tick()

    assert await outcomes(host) == ["failed"]
    assert (await host.execution(letter.execution_id or 0))["status"] == "failed"
    assert len(await host.outbox()) == 1
    assert (observer.judged, observer.rejudged) == ([Outcome.DEFERRED], [Outcome.FAILED])
    groups = await host.session.fetch("SELECT letters, failed FROM dlq_handler.letter_group")
    assert [tuple(row.values()) for row in groups] == [(1, 1)]


async def test_the_same_one_again_is_one_record(host: Host, deferrer: LetterDeferrer) -> None:
    letter = await a_letter(host, "k")
    await deferrer.record([letter, letter])
    await deferrer.record([letter])

    rows = await host.session.fetch("SELECT outcome, repeats FROM dlq_handler.letter")
    assert [tuple(row.values()) for row in rows] == [("deferred", 2)]


async def test_recording_works_while_no_execution_can_be_locked_or_changed(
    host: Host, deferrer: LetterDeferrer
) -> None:
    found = [await a_letter(host, str(number)) for number in range(20)]
    async with host.locking_all():
        await deferrer.record(found)

    assert await outcomes(host) == ["deferred"] * 20


async def test_one_that_takes_too_long_waits_and_the_others_are_decided(
    host: Host, store: Database, deferrer: LetterDeferrer, rejudger: Rejudger
) -> None:
    found = [await a_letter(host, str(number)) for number in range(3)]
    await deferrer.record(found)
    await host.session.execute(
        "CREATE FUNCTION cancel() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'too slow' USING ERRCODE = '57014'; END $$;"
        "CREATE TRIGGER cancel BEFORE UPDATE ON execution FOR EACH ROW"
        f" WHEN (NEW.id = {found[0].execution_id}) EXECUTE FUNCTION cancel()"
    )
    with pytest.raises(TooSlow):
        await rejudger.tick()
    await rejudger.tick()
    assert await outcomes(host) == ["deferred", "failed", "failed"]
    assert await letters.due_for_rejudge(store) == [], "not before its pause is over"

    await host.session.execute(
        "DROP TRIGGER cancel ON execution; UPDATE dlq_handler.letter SET next_try_at = now() WHERE tries = 1"
    )
    await rejudger.tick()
    assert await outcomes(host) == ["failed"] * 3
