"""Wait until a queue holds exactly so many ready messages."""

from typing import Any

from sandbox.attune import topology
from tests.support.eventually import eventually


async def until_ready(vhost: str, queue: str, wanted: int) -> None:
    async def seen() -> Any:
        count = await topology.ready_count(vhost, queue)
        assert count == wanted, f"{queue} holds {count}, not {wanted}"
        return True

    await eventually(seen)
