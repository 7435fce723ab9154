"""Whether a part is well, as a question that answers what is wrong, or nothing.

Asked within this process: a program started at every look would cost more than the part itself.
"""

from collections.abc import Awaitable, Callable

import httpx

from dlq_handler.sandbox.attune.health import Unwell

REQUEST_SECONDS = 5
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
