"""Ask a sidecar that runs beside us for its gate, by its ops listener. Reads only; nobody there is `Unavailable`."""

import asyncio

import httpx

from dlq_handler.domain.gate import GateCause
from dlq_handler.domain.view import GateSeen, Unsure
from dlq_handler.errors import Unavailable


async def ask_for_gate(base_url: str, *, timeout_seconds: float = 2.0) -> GateSeen | Unsure:
    """The causes by its metrics, which are for programs; the words by its notes, which are for people."""
    try:
        async with (
            asyncio.timeout(timeout_seconds),
            httpx.AsyncClient(trust_env=False, verify=False, timeout=timeout_seconds) as client,  # noqa: S501  plain HTTP
        ):
            metrics = (await client.get(f"{base_url}/metrics")).raise_for_status().text
            # 503 is an answer: not ready, and the notes say why.
            notes = (await client.get(f"{base_url}/readyz")).json().get("notes", {})
    except (httpx.HTTPError, TimeoutError, ValueError, AttributeError) as error:
        raise Unavailable("sidecar", f"none answers at {base_url} ({type(error).__name__})") from error
    if "dlq_handler_gate_closed{" not in metrics:
        raise Unavailable("sidecar", f"what answers at {base_url} is none")
    causes = [cause for cause in GateCause if f'dlq_handler_gate_closed{{cause="{cause}"}} 1.0' in metrics]
    if not causes and 'dlq_handler_gate_closed{cause="recovery"} NaN' in metrics:
        # The note is as old as the last look: of one that hangs it says nothing yet.
        why = notes.get("gate", "it has not looked at the database yet, or not lately")
        return Unsure(f"the sidecar at {base_url} answers: {why}")
    return GateSeen(causes=causes, words=notes.get("gate"), asked=base_url)
