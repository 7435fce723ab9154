import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_handler.broker.admin.api_rows import read_binding, rows_of
from dlq_handler.broker.admin.snapshot import BindingFacts, QueueFacts, Snapshot

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(
    rows=st.lists(st.dictionaries(st.text(), _VALUES), max_size=5),
    indent=st.none() | st.integers(min_value=0, max_value=3),
)
def test_rows_are_those_of_the_whole_list(rows: list[dict[str, object]], indent: int | None) -> None:
    content = json.dumps(rows, indent=indent, ensure_ascii=False).encode("utf-8", "surrogatepass")
    try:
        expected = json.loads(content.decode())
    except UnicodeDecodeError:
        with pytest.raises(ValueError, match="codec"):
            list(rows_of(content))
        return
    assert list(rows_of(content)) == expected


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b'{"error": "not_authorised"}', b"<html>", b"[", b"[{}", b"[{} {}]", b"[{},", b"[,]"],
)
def test_an_answer_that_is_no_list_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"list|Expecting"):
        list(rows_of(content))


def test_the_bindings_of_the_default_exchange_are_left_out() -> None:
    row = {"destination": "q", "destination_type": "queue", "routing_key": "q", "arguments": {}}
    assert read_binding(row | {"source": ""}) is None
    assert read_binding(row | {"source": "x"}) == BindingFacts(source="x", destination="q", routing_key="q")


def test_a_word_that_is_the_name_of_a_queue_is_in_use() -> None:
    """The default exchange routes by it."""
    assert Snapshot(queues=[QueueFacts(name="anything")]).unused_word != "anything"
