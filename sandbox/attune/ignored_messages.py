"""What stock Attune acts on and the reference does not: events, enforcements, inquiries, packs, cancellations.

The reference consumes them with stock's tags, because their queues would grow for ever. It logs and acknowledges each
message.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from aio_pika.abc import AbstractChannel

from sandbox.attune import topology
from sandbox.attune.amqp import QueueConsumer
from sandbox.attune.log_line import PrintLine
from sandbox.attune.messages import Envelope
from sandbox.attune.service import AttuneService


@dataclass(frozen=True, slots=True)
class Ignoring:
    tag: str
    prefetch: int = 10


EXECUTOR_QUEUES = {
    "attune.executor.events.queue": Ignoring("executor.event"),
    "attune.enforcements.queue": Ignoring("executor.enforcement"),
    "attune.inquiry.responses.queue": Ignoring("executor.inquiry"),
}


def worker_queues(worker_id: int) -> dict[str, Ignoring]:
    return {
        f"worker.{worker_id}.packs": Ignoring(f"worker-{worker_id}-packs", prefetch=5),
        f"worker.{worker_id}.cancel": Ignoring(f"worker-{worker_id}-cancel"),
    }


async def consume_and_ignore(
    channel: AbstractChannel, queues: Mapping[str, Ignoring], print_line: PrintLine
) -> None:
    for queue, consumer in queues.items():

        async def ignore(envelope: Envelope, queue: str = queue) -> None:
            print_line(
                f"{queue}: {envelope.message_type} is acknowledged; the reference does nothing about it"
            )

        await QueueConsumer(
            channel, queue, consumer.tag, ignore, prefetch=consumer.prefetch, print_line=print_line
        ).start()


class IgnoringListener(AttuneService):
    """The executor's part of it."""

    role = "listener to what is not modelled"

    async def _begin(self, channel: AbstractChannel) -> None:
        await topology.declare_common(channel)
        await topology.declare_executor(channel)
        await consume_and_ignore(channel, EXECUTOR_QUEUES, self._print_line)
