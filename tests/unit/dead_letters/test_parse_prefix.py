"""The beginning of a large body: what is found there is what Python's own parser finds in the whole, or nothing."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_handler.dead_letters.parse_prefix import PrefixFields, read_prefix
from dlq_handler.text import int64_or_none
from tests.support.builders import a_body

NAMES = ["message_type", "payload", "execution_id", "worker_id", "action_ref", "config", "", "é", '"', "\\"]
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)
payloads = st.dictionaries(st.sampled_from(NAMES), values, max_size=6) | values
envelopes = (
    st.fixed_dictionaries({"message_type": st.text() | values, "payload": payloads, "headers": values})
    | values
)
indents = st.sampled_from([None, 0, 2])


def expected(document: Any) -> PrefixFields:
    envelope = document if isinstance(document, dict) else {}
    payload = envelope.get("payload")
    if not isinstance(payload, dict):
        payload = {}
    message_type, action_ref = envelope.get("message_type"), payload.get("action_ref")
    return PrefixFields(
        message_type=message_type if isinstance(message_type, str) else None,
        execution_id=int64_or_none(payload.get("execution_id")),
        worker_id=int64_or_none(payload.get("worker_id")),
        action_ref=action_ref if isinstance(action_ref, str) else None,
    )


@given(envelopes, indents, st.booleans())
def test_a_whole_document_gives_what_the_parser_gives(
    document: Any, indent: int | None, escape: bool
) -> None:
    body = json.dumps(document, indent=indent, ensure_ascii=escape).encode("utf-8", "surrogatepass")
    try:
        parsed = json.loads(body.decode())
    except UnicodeDecodeError:
        return
    assert read_prefix(body) == expected(parsed)


@given(envelopes, indents, st.booleans(), st.data())
def test_a_cut_at_any_byte_gives_the_same_or_nothing(
    document: Any, indent: int | None, escape: bool, data: st.DataObject
) -> None:
    body = json.dumps(document, indent=indent, ensure_ascii=escape).encode("utf-8", "surrogatepass")
    cut = data.draw(st.integers(0, len(body)))
    found, whole = read_prefix(body[:cut]), expected(document)
    for name in PrefixFields.__slots__:
        assert getattr(found, name) in (None, getattr(whole, name)), name


pairs = st.lists(
    st.tuples(st.sampled_from(["execution_id", "worker_id", "action_ref", "x"]), values), max_size=5
)


@given(st.lists(st.tuples(st.sampled_from(["payload", "message_type", "x"]), pairs | values), max_size=5))
def test_of_repeated_names_the_last_one_counts(fields: list[tuple[str, Any]]) -> None:
    def shown(value: Any) -> str:
        is_object = isinstance(value, list) and value and all(isinstance(one, tuple) for one in value)
        if not is_object:
            return json.dumps(value)
        return "{" + ",".join(f"{json.dumps(name)}:{shown(inner)}" for name, inner in value) + "}"

    body = "{" + ",".join(f"{json.dumps(name)}:{shown(value)}" for name, value in fields) + "}"
    assert read_prefix(body.encode()) == expected(json.loads(body))


@given(st.binary() | st.text(alphabet='{}[]",:\\u0019-.eE truefalsnl').map(str.encode))
def test_no_bytes_make_it_raise(prefix: bytes) -> None:
    read_prefix(prefix)
    read_prefix(b'{"payload":{"execution_id":' + prefix)


BEGINNING = json.dumps(a_body(config="x" * 200)).encode()


def test_a_stock_dispatch_is_read_as_soon_as_its_fields_are_there() -> None:
    for cut in range(len(BEGINNING)):
        found = read_prefix(BEGINNING[:cut])
        assert found.message_type == ("ExecutionRequested" if cut > BEGINNING.index(b', "version"') else None)
        assert found.execution_id == (1 if cut > BEGINNING.index(b', "worker_id"') else None)
        assert found.worker_id == (7 if cut > BEGINNING.index(b', "action_ref"') else None)


@pytest.mark.parametrize(
    "body",
    [
        b'{"execution_id":1,"payload":{}}',
        b'{"payload":{"config":{"execution_id":1}}}',
        b'{"payload":[{"execution_id":1}]}',
        b'{"x":{"payload":{"execution_id":1}}}',
        b'{"x":{"execution_id":1}}',
        b'{"x":{"execution_id":1},"payload":{}}',
        b'{"payload":{"x":[}],"execution_id":1}}',
        b'{"payload":{"x":[{]},"execution_id":1}}',
        b'[{"payload":{"execution_id":1}}]',
        b'{"payload":{"execution_id":1},"payload":{}}',
        b'{"payload":{"execution_id":1},"payload":',
        b'{"payload":{"execution_id":1,"execution_id":2',
        b'{"payload":{"x":"{\\"execution_id\\":1}"}}',
        b'{"payload":{"execution_id":"1"}}',
        b'{"payload":{"execution_id":1.0}}',
        b'{"payload":{"execution_id":true}}',
        b'{"payload":{"execution_id":012,"x":1}}',
        b'{"payload":{"execution_id":12abc,"x":1}}',
        b'{"payload":{"execution_id":12"x":1}}',
        b'{"payload":{"execution_id" 12,"x":1}}',
        b'{"payload":{"execution_id":12]',
        b'{"payload":{,"execution_id":12,',
        b'{"payload":{"execution_id":NaN,',
        b'{"payload":{"execution_id":1e3,"x":1}}',
        b'{"payload":{"execution_id":9223372036854775808,"x":1}}',
        b'{"payload":{"execution_id":' + b"1" * 60_000 + b',"x":1}}',
        b"[" * 60_000,
        b'{"a":' * 10_000,
    ],
)
def test_anything_but_the_payload_s_own_integer_is_no_id(body: bytes) -> None:
    assert read_prefix(body).execution_id is None


def test_an_escaped_name_is_the_name() -> None:
    assert read_prefix(b'{"p\\u0061yload":{"\\u0065xecution_id": 5 ,').execution_id == 5
