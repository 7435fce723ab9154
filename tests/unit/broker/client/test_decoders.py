"""Properties that pamqp cannot decode. Fails when an update of the libraries no longer uses our decoders."""

import inspect
import struct

import aiormq.connection
import pamqp.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import decode, encode, frame
from pamqp.commands import Basic, Connection
from pamqp.header import ContentHeader

from dlq_handler.broker.client import decoders
from dlq_handler.broker.client.decoders import UndecodableProperties

MESSAGE_ID, TIMESTAMP, HEADERS = 0x0080, 0x0040, 0x2000


@pytest.fixture(autouse=True)
def _installed() -> None:
    decoders.install()


def header_frame(payload: bytes) -> bytes:
    return struct.pack(">BHI", 2, 1, len(payload)) + payload + b"\xce"


def received(flags: int, properties: bytes, *, body_size: int = 5) -> ContentHeader:
    """What comes out of pamqp as aiormq calls it."""
    payload = struct.pack(">HHQH", 60, 0, body_size, flags) + properties
    _, _, header = pamqp.frame.unmarshal(header_frame(payload))
    assert isinstance(header, ContentHeader)
    return header


def test_undecodable_properties_keep_the_body_size_the_reason_and_the_bytes() -> None:
    header = received(MESSAGE_ID, b"\x02\xff\xfe", body_size=1234)

    assert isinstance(header.properties, UndecodableProperties)
    assert header.body_size == 1234
    assert "UnicodeDecodeError" in header.properties.reason
    assert header.properties.raw == struct.pack(">H", MESSAGE_ID) + b"\x02\xff\xfe"


def test_what_was_decoded_before_the_flaw_is_kept() -> None:
    header = received(MESSAGE_ID | TIMESTAMP, b"\x03abc" + struct.pack(">Q", 1_700_000_000_000_000_000))

    assert isinstance(header.properties, UndecodableProperties)
    assert header.properties.message_id == "abc"
    assert header.properties.timestamp is None


def test_tables_nested_without_end_are_undecodable() -> None:
    table = b""
    for _ in range(3000):
        entry = b"\x01k" + (b"F" + struct.pack(">I", len(table)) + table)
        table = entry
    header = received(HEADERS, struct.pack(">I", len(table)) + table)

    assert isinstance(header.properties, UndecodableProperties)
    assert "RecursionError" in header.properties.reason


def test_sound_properties_are_decoded_as_ever() -> None:
    sent = Basic.Properties(
        message_id="abc", headers={"x-death": [{"queue": "q", "count": 2}]}, delivery_mode=2
    )

    _, _, header = pamqp.frame.unmarshal(pamqp.frame.marshal(ContentHeader(body_size=7, properties=sent), 1))

    assert isinstance(header, ContentHeader)
    assert type(header.properties) is Basic.Properties
    assert header.properties == sent
    assert header.body_size == 7


@given(st.binary(max_size=200), st.integers(0, 0xFFFF))
def test_no_bytes_whatever_end_the_reader(properties: bytes, flags: int) -> None:
    header = received(flags, properties, body_size=9)

    assert header.body_size == 9


@given(st.binary(max_size=255), st.binary(max_size=127), st.integers(0, 2**63 - 1), st.booleans())
def test_a_delivery_is_decoded_whatever_its_names(
    routing_key: bytes, exchange: bytes, tag: int, redelivered: bool
) -> None:
    payload = (
        struct.pack(">I", Basic.Deliver.index)
        + b"\x03tag"
        + struct.pack(">QB", tag, redelivered)
        + bytes([len(exchange)])
        + exchange
        + bytes([len(routing_key)])
        + routing_key
    )
    _, _, frame = pamqp.frame.unmarshal(struct.pack(">BHI", 1, 1, len(payload)) + payload + b"\xce")

    assert isinstance(frame, Basic.Deliver)
    assert (frame.consumer_tag, frame.delivery_tag, frame.redelivered) == ("tag", tag, redelivered)
    assert frame.exchange == exchange.decode("utf-8", "backslashreplace")
    assert frame.routing_key == routing_key.decode("utf-8", "backslashreplace")


def test_a_delivery_is_decoded_as_pamqp_encodes_it() -> None:
    sent = Basic.Deliver("tag", 7, True, "attune.dlx", "execution.dispatch.worker.7")

    _, _, frame = pamqp.frame.unmarshal(pamqp.frame.marshal(sent, 1))

    assert isinstance(frame, Basic.Deliver)
    assert list(frame) == list(sent)


def test_aiormq_reads_frames_by_the_function_that_uses_our_decoders() -> None:
    assert "pamqp.frame.unmarshal(" in inspect.getsource(aiormq.connection.FrameReceiver)


def test_installing_again_changes_nothing() -> None:
    before = ContentHeader.unmarshal, Basic.Deliver.unmarshal

    decoders.install()

    assert (ContentHeader.unmarshal, Basic.Deliver.unmarshal) == before


values = st.recursive(
    st.booleans() | st.integers(-(2**31), 2**31 - 1) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(st.dictionaries(st.text(min_size=1, max_size=5), values, max_size=4), max_size=6))
def test_what_is_decoded_is_what_pamqp_decodes(tables: list[dict[str, object]]) -> None:
    for table in tables:
        raw = encode.field_table(table)  # type: ignore[arg-type]  # any value that AMQP knows
        assert decoders._decode_table(raw + b"more behind it") == decode.field_table(raw)


def test_equal_tables_are_one_object_and_few_are_kept() -> None:
    decoders._decoded_tables.clear()
    first = decoders._decode_table(encode.field_table({"x-death": "a"}))
    assert decoders._decode_table(encode.field_table({"x-death": "a"})) is first
    for number in range(decoders.MAX_TABLES * 3):
        decoders._decode_table(encode.field_table({"x-death": number}))
        assert len(decoders._decoded_tables) <= decoders.MAX_TABLES
    decoders._decoded_tables.clear()
    decoders._decode_table(encode.field_table({"large": "x" * decoders.MAX_TABLE_BYTES}))
    assert decoders._decoded_tables == {}


def test_the_client_really_decodes_headers_by_it() -> None:
    """Fails when a new release of the client no longer looks its decoder up where it is replaced."""
    decoders.install()
    decoders._decoded_tables.clear()
    sent = ContentHeader(body_size=0)
    sent.properties.headers = {"x-death": "seen"}
    ContentHeader().unmarshal(sent.marshal())
    assert len(decoders._decoded_tables) == 1


@pytest.mark.parametrize(
    ("proposed", "agreed"), [(0, 131_072), (131_072, 131_072), (2**27, 131_072), (4096, 4096)]
)
def test_no_frame_is_larger_than_usual(proposed: int, agreed: int) -> None:
    decoders.install()
    wire = frame.marshal(Connection.Tune(channel_max=7, frame_max=proposed, heartbeat=60), 0)

    tune = frame.unmarshal(wire)[2]

    assert isinstance(tune, Connection.Tune)
    assert (tune.channel_max, tune.frame_max, tune.heartbeat) == (7, agreed, 60)
