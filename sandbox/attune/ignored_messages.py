"""What stock Attune acts on and the reference does not: events, enforcements, inquiries, packs, cancellations.

The reference consumes them with stock's tags, because their queues would grow for ever. It logs and acknowledges each
message.
"""

from collections.abc import Mapping

from aio_pika.abc import AbstractChannel

from sandbox.attune import topology
from sandbox.attune.amqp import QueueConsumer
from sandbox.attune.log_line import PrintLine
from sandbox.attune.messages import Envelope
from sandbox.attune.service import AttuneService

EXECUTOR_TAGS = {
    "attune.executor.events.queue": "executor.event",
    "attune.enforcements.queue": "executor.enforcement",
    "attune.inquiry.responses.queue": "executor.inquiry",
}


def worker_tags(worker_id: int) -> dict[str, str]:
    return {
        f"worker.{worker_id}.packs": f"worker-{worker_id}-packs",
        f"worker.{worker_id}.cancel": f"worker-{worker_id}-cancel",
    }


async def consume_and_ignore(
    channel: AbstractChannel, tags: Mapping[str, str], print_line: PrintLine
) -> None:
    """`tags`: of each queue."""
    for queue, tag in tags.items():

        async def ignore(envelope: Envelope, queue: str = queue) -> None:
            print_line(
                f"{queue}: {envelope.message_type} is acknowledged; the reference does nothing about it"
            )

        await QueueConsumer(channel, queue, tag, ignore, print_line=print_line).start()


class IgnoringListener(AttuneService):
    """The executor's part of it."""

    role = "listener to what is not modelled"

    async def _begin(self, channel: AbstractChannel) -> None:
        await topology.declare_common(channel)
        await topology.declare_executor(channel)
        await consume_and_ignore(channel, EXECUTOR_TAGS, self._print_line)
