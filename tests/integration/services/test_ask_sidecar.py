"""A command asks the sidecar beside it for its gate, by the page that every scrape reads."""

import asyncio

from dlq_handler.domain.gate import GateCause
from dlq_handler.domain.view import GateSeen, Unsure
from dlq_handler.errors import Unavailable
from dlq_handler.services.ask_sidecar import ask_for_gate
from dlq_handler.services.readiness import Readiness
from dlq_handler.surface.listener import Listener
from dlq_handler.surface.metrics import Metrics
from dlq_handler.surface.ops_http import ops_app
from tests.support.eventually import eventually


async def test_a_sidecar_that_has_not_looked_does_not_say_that_its_gate_is_open() -> None:
    readiness, metrics, stop = Readiness(), Metrics(), asyncio.Event()
    listener = Listener(host="127.0.0.1", port=0, setting="test")
    url = f"http://127.0.0.1:{listener.port}"

    async def is_serving() -> bool:
        try:
            return bool(await ask_for_gate(url))
        except Unavailable:
            return False

    async with asyncio.TaskGroup() as serving:
        serving.create_task(listener.run(stop, ops_app(readiness, metrics)))
        try:
            await eventually(is_serving)
            unlooked = await ask_for_gate(url)
            metrics.gate_built(lambda _: False)
            open_gate = await ask_for_gate(url)
            metrics.gate_built(lambda cause: True if cause is GateCause.RECOVERY else None)
            closed = await ask_for_gate(url)
        finally:
            stop.set()

    why = "it has not looked at the database yet, or not lately"
    assert unlooked == Unsure(f"the sidecar at {url} answers: {why}")
    assert open_gate == GateSeen(causes=[], asked=url)
    assert closed == GateSeen(causes=[GateCause.RECOVERY], asked=url)
