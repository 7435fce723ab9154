"""Read server-sent events as a browser does: one by one, with their ids."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

WITHIN_SECONDS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    kind: str
    id: int
    """0: it has none."""
    content: dict[str, Any]


class EventStream:
    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self._lines = answer.aiter_lines()

    async def next(self) -> Event:
        """StopAsyncIteration: the stream has ended."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(WITHIN_SECONDS):
            while True:
                line = await anext(self._lines)
                if line:
                    name, _, value = line.partition(": ")
                    fields[name] = value
                elif "event" in fields:
                    return Event(
                        kind=fields["event"],
                        id=int(fields.get("id", "0")),
                        content=json.loads(fields["data"]),
                    )

    async def is_over(self) -> bool:
        try:
            await self.next()
        except StopAsyncIteration:
            return True
        return False


@asynccontextmanager
async def listening_to(url: str, **headers: str) -> AsyncIterator[EventStream]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with (
        httpx.AsyncClient(trust_env=False, timeout=WITHIN_SECONDS) as client,
        client.stream("GET", url, headers=named) as answer,
    ):
        assert answer.status_code == 200, await answer.aread()
        yield EventStream(answer)
