"""What every long-running part looks like to the one who starts it."""

import asyncio
from typing import Protocol


class Service(Protocol):
    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, end the work in hand, return. Never raises for a server that is away."""
