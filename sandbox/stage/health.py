"""Whether a part is well, as a question that answers what is wrong, or nothing.

Asked within this process: a program started at every look would cost more than the part itself.
"""

import asyncio
from collections.abc import Awaitable, Callable

import httpx

from sandbox.attune.defects import Defect
from sandbox.attune.environment import Environment
from sandbox.attune.health import (
    Inactive,
    Unhealthy,
    WithoutBroker,
    api_health,
    executor_health,
    worker_health,
)

REQUEST_SECONDS = 5
SETTLE_SECONDS = 10
LOOK_SECONDS = 0.2
HealthCheck = Callable[[], Awaitable[str]]
"""Empty when all is well."""


def answering(url: str) -> HealthCheck:
    """GET is answered with 200."""

    async def check_health() -> str:
        try:
            # Unverified: reading the certificates takes longer than many a part's start; and no proxy is asked.
            async with httpx.AsyncClient(verify=False, trust_env=False, timeout=REQUEST_SECONDS) as client:  # noqa: S501 (plain http)
                answer = await client.get(url)
        except httpx.TransportError as silent:
            return f"{url} does not answer ({type(silent).__name__})"
        return "" if answer.status_code == httpx.codes.OK else f"{url} answers {answer.status_code}"

    return check_health


def well(look: Callable[[], Awaitable[str]]) -> HealthCheck:
    """A health check of Attune's, which says something in either case."""

    async def check_health() -> str:
        try:
            await look()
        except Unhealthy as unwell:
            return str(unwell)
        return ""

    return check_health


async def why_restart(environment: Environment, part: str) -> str:
    """Why waiting does not help a part of Attune's that runs: only a restart does. Empty when waiting may help."""
    try:
        async with asyncio.timeout(SETTLE_SECONDS):
            # More than one look: the executor may give a worker up while its first heartbeat is still on the way.
            while True:
                try:
                    await _look(environment, part)
                except Inactive:
                    if Defect.D10 not in environment.cured:
                        return "was silent too long: Attune keeps it inactive (D10)"
                except WithoutBroker:
                    if Defect.NO_RECONNECT not in environment.cured:
                        return "has lost the broker: Attune's services never connect again"
                except Unhealthy:
                    pass
                else:
                    return ""
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        return ""


async def _look(environment: Environment, part: str) -> None:
    match part:
        case "api":
            await asyncio.to_thread(api_health, environment)
        case "executor":
            await executor_health(environment)
        case worker:
            await worker_health(environment, worker)
