"""Dead letters that are recorded undecided, and decided from the record, on stock Attune's tables."""

import pytest

from dlq_handler.database.engine import Database
from dlq_handler.dead_letters import reprocess_sql
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.dead_letters.record import Entry
from dlq_handler.dead_letters.recorder import DeferringRecorder
from dlq_handler.dead_letters.reprocess import Reprocessor
from dlq_handler.endings.ender import Ender
from dlq_handler.endings.options import RecordOptions
from dlq_handler.errors import TooSlow
from dlq_handler.metrics import Metrics
from dlq_handler.rooms import new_metrics
from tests.support.builders import COMPLETIONS, a_dead_letter
from tests.support.deciding import a_reprocessor, deferring_ender
from tests.support.host_tables import Host


@pytest.fixture
def metrics() -> Metrics:
    return new_metrics()


@pytest.fixture
def deferrer(store: Database, metrics: Metrics) -> Ender[DeadLetter, Entry]:
    return deferring_ender(store, metrics)


@pytest.fixture
def reprocessor(store: Database, metrics: Metrics) -> Reprocessor:
    return a_reprocessor(store, metrics=metrics)


async def a_letter(host: Host, key: str) -> DeadLetter:
    execution_id = await host.add_execution()
    updated = (await host.execution(execution_id))["updated"]
    return a_dead_letter(
        key=key,
        execution_id=execution_id,
        attempt_updated_at=updated,
        worker_id=None,
        redelivered=True,
        deliveries=5,
    )


def counted_outcomes(metrics: Metrics, name: str) -> dict[str, float]:
    [family] = [one for one in metrics.registry.collect() if one.name == f"dlq_handler_{name}"]
    return {sample.labels["outcome"]: sample.value for sample in family.samples if sample.value}


async def outcomes(host: Host) -> list[str]:
    rows = await host.session.fetch("SELECT outcome FROM dlq_handler.letter ORDER BY id")
    return [row["outcome"] for row in rows]


@pytest.mark.parametrize(
    ("deliveries", "own_count", "is_due"), [(4, 0, False), (5, 0, True), (4, 4, False), (0, 5, True)]
)
def test_it_is_due_by_the_count_of_the_broker_or_of_this_process(
    metrics: Metrics, deliveries: int, own_count: int, is_due: bool
) -> None:
    options = RecordOptions(replica="test", destination=COMPLETIONS)
    recorder = DeferringRecorder(options, metrics, after_deliveries=5)

    assert recorder.is_due(a_dead_letter(deliveries=deliveries), own_count=own_count) is is_due


async def test_a_deferred_dead_letter_is_decided_from_its_record(
    host: Host, deferrer: Ender[DeadLetter, Entry], reprocessor: Reprocessor, metrics: Metrics
) -> None:
    letter = await a_letter(host, "k")
    await deferrer.commit([letter])
    assert await outcomes(host) == ["deferred"]
    assert (await host.execution(letter.execution_id or 0))["status"] == "scheduled", "nothing is decided yet"

    await reprocessor.tick()

    assert await outcomes(host) == ["failed"]
    assert (await host.execution(letter.execution_id or 0))["status"] == "failed"
    assert len(await host.outbox()) == 1
    assert counted_outcomes(metrics, "dead_letters") == {Outcome.DEFERRED: 1}
    assert counted_outcomes(metrics, "dead_letters_reprocessed") == {Outcome.FAILED: 1}
    groups = await host.session.fetch("SELECT letters, failed FROM dlq_handler.letter_group")
    assert [tuple(row.values()) for row in groups] == [(1, 1)]


async def test_the_same_one_again_is_one_record(host: Host, deferrer: Ender[DeadLetter, Entry]) -> None:
    letter = await a_letter(host, "k")
    await deferrer.commit([letter, letter])
    await deferrer.commit([letter])

    rows = await host.session.fetch("SELECT outcome, repeats FROM dlq_handler.letter")
    assert [tuple(row.values()) for row in rows] == [("deferred", 2)]


async def test_recording_works_while_no_execution_can_be_locked_or_changed(
    host: Host, deferrer: Ender[DeadLetter, Entry]
) -> None:
    found = [await a_letter(host, str(number)) for number in range(20)]
    async with host.locking_all():
        await deferrer.commit(found)

    assert await outcomes(host) == ["deferred"] * 20


async def test_one_that_takes_too_long_waits_and_the_others_are_decided(
    host: Host, store: Database, deferrer: Ender[DeadLetter, Entry], reprocessor: Reprocessor
) -> None:
    found = [await a_letter(host, str(number)) for number in range(3)]
    await deferrer.commit(found)
    await host.session.execute(
        "CREATE FUNCTION cancel() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'too slow' USING ERRCODE = '57014'; END $$;"
        "CREATE TRIGGER cancel BEFORE UPDATE ON execution FOR EACH ROW"
        f" WHEN (NEW.id = {found[0].execution_id}) EXECUTE FUNCTION cancel()"
    )
    with pytest.raises(TooSlow):
        await reprocessor.tick()
    await reprocessor.tick()
    assert await outcomes(host) == ["deferred", "failed", "failed"]
    assert await reprocess_sql.due_for_reprocess(store) == [], "not before its pause is over"

    await host.session.execute(
        "DROP TRIGGER cancel ON execution; UPDATE dlq_handler.letter SET next_attempt_at = now() WHERE attempts = 1"
    )
    await reprocessor.tick()
    assert await outcomes(host) == ["failed"] * 3
