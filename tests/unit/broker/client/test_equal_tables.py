"""Equal header tables are decoded once; different ones never get each other's values; what is kept is bounded."""

from hypothesis import given
from hypothesis import strategies as st
from pamqp import decode, encode
from pamqp.header import ContentHeader

from dlq_handler.broker.client import equal_tables

values = st.recursive(
    st.booleans() | st.integers(-(2**31), 2**31 - 1) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(st.dictionaries(st.text(min_size=1, max_size=5), values, max_size=4), max_size=6))
def test_what_is_decoded_is_what_pamqp_decodes(tables: list[dict[str, object]]) -> None:
    for table in tables:
        raw = encode.field_table(table)  # type: ignore[arg-type]  # any value that AMQP knows
        assert equal_tables._decode_table(raw + b"more behind it") == decode.field_table(raw)


def test_equal_tables_are_one_object_and_few_are_kept() -> None:
    equal_tables._decoded.clear()
    first = equal_tables._decode_table(encode.field_table({"x-death": "a"}))
    assert equal_tables._decode_table(encode.field_table({"x-death": "a"})) is first
    for number in range(equal_tables.MAX_TABLES * 3):
        equal_tables._decode_table(encode.field_table({"x-death": number}))
        assert len(equal_tables._decoded) <= equal_tables.MAX_TABLES
    equal_tables._decoded.clear()
    equal_tables._decode_table(encode.field_table({"large": "x" * equal_tables.MAX_TABLE_BYTES}))
    assert equal_tables._decoded == {}


def test_the_client_really_decodes_headers_by_it() -> None:
    """Fails when a new release of the client no longer looks its decoder up where it is replaced."""
    equal_tables.install()
    equal_tables._decoded.clear()
    sent = ContentHeader(body_size=0)
    sent.properties.headers = {"x-death": "seen"}
    ContentHeader().unmarshal(sent.marshal())
    assert len(equal_tables._decoded) == 1
