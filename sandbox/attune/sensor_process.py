"""The sensor as a process. It runs no sensor: it makes the queue that Attune's sensor service makes, and empties it."""

import asyncio

from aio_pika.abc import AbstractChannel

from sandbox.attune import topology
from sandbox.attune.environment import Environment
from sandbox.attune.ignored_messages import Ignoring, consume_and_ignore
from sandbox.attune.log_line import PrintLine
from sandbox.attune.service import AttuneService

# Attune's own tag is not known.
TAG = "sensor.events"


class Sensor(AttuneService):
    role = "sensor"

    async def _begin(self, channel: AbstractChannel) -> None:
        await topology.declare_common(channel)
        await topology.declare_sensor(channel)
        await consume_and_ignore(channel, {topology.EVENTS_QUEUE: Ignoring(TAG)}, self._print_line)


async def run_sensor(environment: Environment, stop: asyncio.Event, print_line: PrintLine) -> None:
    sensor = Sensor(
        environment.amqp_url,
        environment.database_url,
        schema=environment.schema,
        cured=environment.cured,
        print_line=print_line,
        connection_name="sensor",
        amqp_heartbeat_seconds=environment.times.amqp_heartbeat_seconds,
    )
    await sensor.run(stop)
