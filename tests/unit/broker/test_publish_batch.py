"""What the broker's confirms and returns say about each message of a batch."""

import random

from hypothesis import given
from hypothesis import strategies as st
from pamqp.commands import Basic

from dlq_handler.broker.outgoing import Confirmed, OutgoingMessage, PublishOutcome, Unanswered, Unroutable
from dlq_handler.broker.publish_connection import NACKED, PublishBatch, parts_without_repeats

UNANSWERED = Unanswered("no answer")


def a_message(message_id: str) -> OutgoingMessage:
    return OutgoingMessage(
        message_id=message_id, correlation_id="c", exchange="x", routing_key="k", body=message_id.encode()
    )


def a_batch(count: int, *, first_tag: int = 1) -> PublishBatch:
    return PublishBatch(first_tag, [a_message(str(n)) for n in range(count)])


def ack(tag: int, *, multiple: bool = False) -> Basic.Ack:
    return Basic.Ack(delivery_tag=tag, multiple=multiple)


async def test_a_batch_is_answered_when_every_message_is_answered() -> None:
    batch = a_batch(3)

    batch.take_confirm(ack(2))
    batch.take_confirm(ack(3))
    assert not batch.answered.done()

    batch.take_confirm(ack(1))
    assert batch.answered.done()
    assert batch.outcomes(UNANSWERED) == [Confirmed()] * 3


async def test_one_confirm_answers_all_messages_up_to_its_number() -> None:
    batch = a_batch(3, first_tag=11)

    batch.take_confirm(ack(12, multiple=True))

    assert batch.outcomes(UNANSWERED) == [Confirmed(), Confirmed(), UNANSWERED]


async def test_a_returned_message_is_unroutable_although_it_is_confirmed() -> None:
    batch = a_batch(3)

    batch.take_return("1", "NO_ROUTE")
    batch.take_confirm(ack(3, multiple=True))

    assert batch.outcomes(UNANSWERED) == [Confirmed(), Unroutable("NO_ROUTE"), Confirmed()]


async def test_a_nack_refuses_only_what_was_not_confirmed_before() -> None:
    batch = a_batch(3)

    batch.take_confirm(ack(1))
    batch.take_confirm(Basic.Nack(delivery_tag=3, multiple=True))

    assert batch.outcomes(UNANSWERED) == [Confirmed(), NACKED, NACKED]


async def test_a_late_answer_to_an_earlier_batch_changes_nothing() -> None:
    batch = a_batch(2, first_tag=11)

    batch.take_confirm(ack(10, multiple=True))
    batch.take_confirm(ack(4))
    batch.take_return("another id", "NO_ROUTE")

    assert batch.outcomes(UNANSWERED) == [UNANSWERED, UNANSWERED]


@given(st.lists(st.sampled_from(["ack", "nack", "return"]), min_size=1, max_size=20), st.randoms())
async def test_answers_in_any_order_give_each_message_its_own(
    answers: list[str], chance: random.Random
) -> None:
    batch = a_batch(len(answers), first_tag=5)
    order = list(range(len(answers)))
    chance.shuffle(order)

    for n in order:
        if answers[n] == "return":
            batch.take_return(str(n), "NO_ROUTE")
        batch.take_confirm(Basic.Nack(delivery_tag=5 + n) if answers[n] == "nack" else ack(5 + n))

    expected: dict[str, PublishOutcome] = {
        "ack": Confirmed(),
        "nack": NACKED,
        "return": Unroutable("NO_ROUTE"),
    }
    assert batch.outcomes(UNANSWERED) == [expected[answer] for answer in answers]
    assert batch.answered.done()


@given(st.lists(st.sampled_from("abcd")))
def test_no_part_has_an_id_twice_and_the_order_is_kept(ids: list[str]) -> None:
    messages = [a_message(message_id) for message_id in ids]

    parts = list(parts_without_repeats(messages))

    assert [message for part in parts for message in part] == messages
    assert all(len({message.message_id for message in part}) == len(part) for part in parts)
