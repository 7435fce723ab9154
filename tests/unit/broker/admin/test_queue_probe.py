"""Reading the broker's refusals, as RabbitMQ words them, and anything odd."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_handler.broker.admin.queue_probe import BrokerRefusal, read_refusal

START = "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': "


@pytest.mark.parametrize(
    ("said", "current"),
    [
        (START + "received 'probe' but current is '300000'", "300000"),
        (START + "received none but current is the value '300000' of type 'signedint'", 300000),
        (START + "received the value 'probe' of type 'longstr' but current is none", None),
        (START + "received none but current is the value '123' of type 'longstr'", "123"),
        (START + "received none but current is the value 'it's' of type 'longstr'", "it's"),
        (START + "received none but current is the value '' of type 'longstr'", ""),
    ],
)
def test_the_present_value_is_read(said: str, current: str | int | None) -> None:
    assert read_refusal(said) == BrokerRefusal(argument="x-message-ttl", current=current)


def test_a_queue_named_like_a_refusal_does_not_mislead() -> None:
    said = (
        "PRECONDITION_FAILED - inequivalent arg 'durable' for queue ' but current is 'x'' in vhost '/': "
        "received 'true' but current is 'false'"
    )

    assert read_refusal(said) == BrokerRefusal(argument="durable", current="false")


@pytest.mark.parametrize(
    "said",
    [
        "",
        "PRECONDITION_FAILED - invalid arg 'x-message-ttl' for queue 'q' in vhost '/': expected integer",
        "ACCESS_REFUSED - access to queue 'q' refused",
        START + "something new",
        START + "received none but current is odd",
    ],
)
def test_anything_else_is_nothing(said: str) -> None:
    assert read_refusal(said) is None


@given(st.text())
def test_no_text_is_an_error(said: str) -> None:
    read_refusal(START + said)
    read_refusal(said)
