"""The demo requests executions by Attune's HTTP API."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from sandbox.stage.first_error import raise_first_error

_AT_ONCE = 8
_REQUEST_SECONDS = 10


class AttuneClient:
    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def execute(self, action_ref: str, count: int, **parameters: object) -> list[int]:
        """The ids of `count` new executions. They are asked for in this order, a few at a time."""
        turns = asyncio.Semaphore(_AT_ONCE)

        async def one() -> int:
            async with turns:
                answer = await self._client.post(
                    "/api/v1/executions/execute", json={"action_ref": action_ref, "parameters": parameters}
                )
                answer.raise_for_status()
                number: int = answer.json()["data"]["id"]
                return number

        with raise_first_error():
            async with asyncio.TaskGroup() as group:
                asked = [group.create_task(one()) for _ in range(count)]
        return sorted(task.result() for task in asked)


@asynccontextmanager
async def attune_client(api_url: str, token: str) -> AsyncIterator[AttuneClient]:
    async with httpx.AsyncClient(
        base_url=api_url,
        headers={"Authorization": f"Bearer {token}"},
        timeout=_REQUEST_SECONDS,
        trust_env=False,
    ) as client:
        yield AttuneClient(client)
