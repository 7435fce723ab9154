"""No dead letter, whatever it holds, makes a batch fail: it is on record, and so are the ones beside it."""

import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pamqp.commands import Basic
from pamqp.header import ContentHeader
from structlog.testing import capture_logs

from dlq_handler.broker.client import decoders
from dlq_handler.broker.consumer_session import raw_message
from dlq_handler.database.engine import Database
from dlq_handler.dead_letters import recorder
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.dead_letters.parse import read_dead_letter
from dlq_handler.dead_letters.record import OWN_ERROR
from dlq_handler.errors import TooSlow, Unavailable
from sandbox.attune.database import Row
from tests.support.builders import a_dead_letter, a_death, a_raw_letter, read
from tests.support.deciding import HeldRelay, a_reprocessor, letter_ender
from tests.support.host_tables import Host
from tests.support.hostile import Hostility

# One database for all examples: what one of them leaves there does not change what the next one shows.
ON_ONE_DATABASE = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


async def records(host: Host, letters: Sequence[DeadLetter]) -> dict[str, Row]:
    rows = await host.session.fetch(
        "SELECT * FROM dlq_handler.letter WHERE key = ANY ($1::text[])", [letter.key for letter in letters]
    )
    return {row["key"]: row for row in rows}


@pytest.mark.parametrize(
    "headers",
    [
        {"x-first-death-queue": "worker.9999999999999999999.executions"},
        {"x-death": [{"queue": f"worker.{2**63}.executions"}]},
        {"x-death": [{"queue": "worker.7.executions", "count": 2**63}]},
    ],
)
async def test_a_number_that_no_column_holds_stops_nothing(
    store: Database, host: Host, headers: dict[str, object]
) -> None:
    execution_id = await host.add_execution()
    good = await host.letter_for(execution_id)
    forged = read(a_raw_letter(b"hello", headers=headers))

    await letter_ender(store).commit([forged, good])

    assert (await host.execution(execution_id))["status"] == "failed"
    assert (await records(host, [forged]))[forged.key]["outcome"] == "unreadable"


@pytest.mark.parametrize(
    ("refusal", "kept", "lost"),
    [
        (
            "ALTER TABLE dlq_handler.letter_group ADD CHECK (reason <> 'poison')",
            {"outcome": "update_failed", "message_id": "poison", "execution_id": 5, "headers": {}},
            "group_id",
        ),
        (
            "ALTER TABLE dlq_handler.letter ADD CHECK (headers = '{}')",
            {"outcome": "update_failed", "message_id": "poison", "execution_id": 5, "headers": {}},
            "group_id",
        ),
        (
            "ALTER TABLE dlq_handler.letter ADD CHECK (message_id <> 'poison')",
            {
                "outcome": "update_failed",
                "execution_id": 5,
                "reason": "none",
                "body": b"its body",
                "headers": {},
            },
            "message_id",
        ),
        (
            "ALTER TABLE dlq_handler.letter ADD CHECK (message_id <> 'poison' AND execution_id <> 5)",
            {"outcome": "unreadable", "body": b"its body", "body_size": 8, "headers": {}},
            "execution_id",
        ),
    ],
)
async def test_what_the_database_refuses_is_recorded_with_less_and_less(
    store: Database, host: Host, refusal: str, kept: dict[str, Any], lost: str
) -> None:
    await host.session.execute(refusal)
    execution_id = await host.add_execution()
    good = await host.letter_for(execution_id)
    poison = a_dead_letter(
        key="poison",
        message_id="poison",
        execution_id=5,
        death=a_death(reason="poison"),
        headers='{"x-poison":1}',
        body=b"its body",
        body_size=8,
    )

    await letter_ender(store).commit([poison, good])

    record = dict((await records(host, [poison]))["poison"])
    assert {name: record[name] for name in kept} == kept
    assert record[lost] is None
    assert "violates check constraint" in record["error"]
    assert (await host.execution(execution_id))["status"] == "failed"


async def test_a_dispatch_with_a_text_that_the_database_refuses_is_decided_from_its_numbers(
    store: Database, host: Host
) -> None:
    await host.session.execute("ALTER TABLE dlq_handler.letter ADD CHECK (message_id <> 'poison')")
    execution_id = await host.add_execution()
    poison = replace(await host.letter_for(execution_id), message_id="poison")
    await letter_ender(store).commit([poison])
    (record,) = (await records(host, [poison])).values()
    assert (await host.execution(execution_id))["status"] == "scheduled"

    await a_reprocessor(store).reprocess(record["id"])

    assert (await host.execution(execution_id))["status"] == "failed"


async def test_a_table_that_takes_no_record_at_all_is_no_dead_letter_s_fault(
    store: Database, host: Host
) -> None:
    await host.session.execute("ALTER TABLE dlq_handler.letter ADD CHECK (false) NOT VALID")

    with pytest.raises(Unavailable, match="violates check constraint"):
        await letter_ender(store).commit([a_dead_letter()])


async def test_the_completion_event_of_the_first_half_is_published_although_the_second_is_too_slow(
    store: Database, host: Host
) -> None:
    good, refused, slow = [await host.add_execution() for _ in range(3)]
    await host.session.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'on purpose' USING ERRCODE = TG_ARGV[0]; END $$;"
        "CREATE TRIGGER refuse BEFORE UPDATE ON execution FOR EACH ROW"
        f" WHEN (NEW.id = {refused}) EXECUTE FUNCTION refuse('22023');"
        "CREATE TRIGGER slow BEFORE UPDATE ON execution FOR EACH ROW"
        f" WHEN (NEW.id = {slow}) EXECUTE FUNCTION refuse('57014')"
    )
    letters = [await host.letter_for(number) for number in (good, refused, slow)]
    relay = HeldRelay()

    with pytest.raises(TooSlow):
        await letter_ender(store, relay=relay).commit(letters)

    assert (await host.execution(good))["status"] == "failed"
    assert [entry.message.execution_id for entry in relay.offered] == [good]


async def test_an_error_of_the_code_is_not_recorded_as_a_refusal_of_the_database(
    store: Database, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("the content of a sender")

    monkeypatch.setattr(recorder, "decide_batch", fail)
    letter = await host.letter_for(await host.add_execution())

    with capture_logs() as logs:
        await letter_ender(store).commit([letter])

    record = (await records(host, [letter]))[letter.key]
    assert (record["outcome"], record["explanation"]) == ("update_failed", OWN_ERROR)
    [line] = [one for one in logs if one["event"] == "dead_letter.refused"]
    assert line["frames"][-1].startswith("test_hostile_letters.py:")
    assert "the content" not in str(logs)


anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(),
    st.datetimes(),
    st.lists(st.integers(), max_size=2),
)
FIELDS = (
    "message_id",
    "correlation_id",
    "message_type",
    "execution_id",
    "worker_id",
    "attempt_updated_at",
    "death",
    "first_death_queue",
    "exchange",
    "routing_key",
    "action_ref",
    "parse_error",
    "headers",
)


@ON_ONE_DATABASE
@given(
    st.lists(
        st.dictionaries(st.sampled_from(FIELDS), anything, min_size=1, max_size=3), min_size=1, max_size=6
    )
)
async def test_no_field_of_any_value_makes_a_batch_fail(
    store: Database, host: Host, odd: list[dict[str, Any]]
) -> None:
    """Beyond what the reader lets through: a hole in it must not stop the intake."""
    execution_id = await host.add_execution()
    good = await host.letter_for(execution_id)
    bad = [a_dead_letter(**({"key": uuid4().hex} | fields)) for fields in odd]

    await letter_ender(store).commit([*bad, good])

    assert (await host.execution(execution_id))["status"] == "failed"
    assert (await records(host, bad)).keys() == {letter.key for letter in bad}


@ON_ONE_DATABASE
@given(st.integers(0, 2**32))
async def test_no_message_of_any_bytes_makes_a_batch_fail(store: Database, host: Host, seed: int) -> None:
    decoders.install()
    execution_id = await host.add_execution()
    good = await host.letter_for(execution_id)
    hostility = Hostility(seed, execution_ids=[execution_id])
    letters = []
    for _ in range(25):
        message = hostility.message()
        header = ContentHeader()
        header.unmarshal(struct.pack(">HHQ", 60, 0, len(message.body)) + message.properties)
        deliver = Basic.Deliver(exchange="attune.dlx", routing_key="k", delivery_tag=1, consumer_tag="c")
        raw = raw_message(deliver, header, message.body)
        letters.append(read_dead_letter(raw, body_limit_bytes=65_536))

    await letter_ender(store).commit([*letters, good])

    assert (await host.execution(execution_id))["status"] == "failed"
    assert (await records(host, letters)).keys() == {letter.key for letter in letters}
