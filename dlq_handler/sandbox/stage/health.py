"""Whether a part is well, as a question that answers what is wrong, or nothing.

Asked within this process: a program started at every look would cost more than the part itself.
"""

import asyncio
from collections.abc import Awaitable, Callable

import httpx

from dlq_handler.sandbox.attune.defects import Defect
from dlq_handler.sandbox.attune.environment import Environment
from dlq_handler.sandbox.attune.health import Inactive, Unwell, worker_health

REQUEST_SECONDS = 5
SETTLE_SECONDS = 10
LOOK_SECONDS = 0.2
Complain = Callable[[], Awaitable[str]]
"""Empty when all is well."""


def answering(url: str) -> Complain:
    """GET is answered with 200."""

    async def complain() -> str:
        try:
            # Unverified: reading the certificates takes longer than many a part's start; and no proxy is asked.
            async with httpx.AsyncClient(verify=False, trust_env=False, timeout=REQUEST_SECONDS) as client:  # noqa: S501 (plain http)
                answer = await client.get(url)
        except httpx.TransportError as silent:
            return f"{url} does not answer ({type(silent).__name__})"
        return "" if answer.status_code == httpx.codes.OK else f"{url} answers {answer.status_code}"

    return complain


def well(look: Callable[[], Awaitable[str]]) -> Complain:
    """A health check of Attune's, which says something in either case."""

    async def complain() -> str:
        try:
            await look()
        except Unwell as unwell:
            return str(unwell)
        return ""

    return complain


async def is_given_up(environment: Environment, worker: str) -> bool:
    """Whether a worker that runs is inactive for good: no heartbeat of stock Attune makes it active again (D10)."""
    if Defect.D10 in environment.cured:
        return False
    try:
        async with asyncio.timeout(SETTLE_SECONDS):
            # More than one look: the executor may give it up while its first heartbeat is still on the way.
            while True:
                try:
                    await worker_health(environment, worker)
                except Inactive:
                    return True
                except Unwell:
                    await asyncio.sleep(LOOK_SECONDS)
                else:
                    return False
    except TimeoutError:
        return False
