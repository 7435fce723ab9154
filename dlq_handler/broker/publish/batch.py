"""Match the broker's answers with the messages of one batch.

The broker confirms by running number: one message, or all up to a number. A message that no queue takes it returns
first, by message id, and confirms afterwards like the others.
"""

import asyncio
from collections.abc import Iterator, Sequence

from pamqp.commands import Basic

from dlq_handler.broker.publish.message import Confirmed, OutgoingMessage, PublishOutcome, Refused, Unroutable

NACKED = Refused("the broker refused it (basic.nack): a queue is full, or has failed")


class PublishBatch:
    def __init__(self, first_tag: int, messages: Sequence[OutgoingMessage]) -> None:
        self._first_tag = first_tag
        self._next_tag = first_tag
        """Every tag below this one is answered; some above may be."""
        self._end_tag = first_tag + len(messages)
        self._tag_by_id = {message.message_id: first_tag + n for n, message in enumerate(messages)}
        self._outcomes: list[PublishOutcome | None] = [None] * len(messages)
        self._returned: dict[int, Unroutable] = {}
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def take_return(self, message_id: str | None, text: str) -> None:
        tag = self._tag_by_id.get(message_id or "")
        if tag is not None:
            self._returned[tag] = Unroutable(text)

    def take_confirm(self, frame: Basic.Ack | Basic.Nack) -> None:
        answer = Confirmed() if isinstance(frame, Basic.Ack) else NACKED
        last = frame.delivery_tag or 0
        for tag in range(self._next_tag if frame.multiple else last, last + 1):
            # A late answer to an earlier batch, which was given up, is ignored.
            if self._first_tag <= tag < self._end_tag and self._outcomes[tag - self._first_tag] is None:
                self._outcomes[tag - self._first_tag] = self._returned.get(tag, answer)
        while self._next_tag < self._end_tag and self._outcomes[self._next_tag - self._first_tag] is not None:
            self._next_tag += 1
        if self._next_tag == self._end_tag:
            self.end()

    def end(self) -> None:
        """All answers have arrived, or no more will."""
        if not self.answered.done():
            self.answered.set_result(None)

    def outcomes(self, if_unanswered: PublishOutcome) -> list[PublishOutcome]:
        return [outcome or if_unanswered for outcome in self._outcomes]


def parts_without_repeats(messages: Sequence[OutgoingMessage]) -> Iterator[list[OutgoingMessage]]:
    """Cut the batch, in order, so that no id occurs twice in a part."""
    part: dict[str, OutgoingMessage] = {}
    for message in messages:
        if message.message_id in part:
            yield list(part.values())
            part = {}
        part[message.message_id] = message
    if part:
        yield list(part.values())
