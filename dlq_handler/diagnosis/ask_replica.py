"""Ask a replica for its safety gate: this process, or the one on this machine over its ops listener. Reads only.

An address that refuses the connection, or accepts none in time, is `Unavailable`: no process, or a firewall that drops
packets. A process that accepts the connection and does not answer hangs.
"""

import asyncio
import math
from collections.abc import Mapping
from typing import Any, Protocol

import httpx

from dlq_handler.diagnosis.view import GateFact, Unknown, UnknownCause
from dlq_handler.errors import Unavailable
from dlq_handler.safety.gate import GateCause
from dlq_handler.safety.gate_service import Gate


class AskedGate(Protocol):
    """The safety gate of one replica."""

    async def ask(self) -> GateFact | Unknown: ...

    @property
    def watched_seconds(self) -> float:
        """Time without a break in which heartbeats were read."""
        ...


class OwnGate:
    """That of this process."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def ask(self) -> GateFact | Unknown:
        return await ask_own_gate(self._gate)

    @property
    def watched_seconds(self) -> float:
        return self._gate.watched_seconds


class RemoteGate:
    """That of the replica beside a command."""

    # As if it had read heartbeats all the time: a command can know no more of them than their age.
    watched_seconds = math.inf

    def __init__(self, base_url: str) -> None:
        self._base_url = base_url

    async def ask(self) -> GateFact | Unknown:
        return await ask_for_gate(self._base_url)


async def ask_own_gate(gate: Gate) -> GateFact | Unknown:
    state = await gate.read_state()
    if state.unknown_explanation is not None:
        return Unknown(state.unknown_explanation, UnknownCause.REPLICA_UNSURE)
    return GateFact(causes=tuple(state.causes), explanation="; ".join(state.causes.values()) or None)


async def ask_for_gate(base_url: str, *, timeout_seconds: float = 2.0) -> GateFact | Unknown:
    """Its /readyz has the causes, and the words for them in its notes."""
    is_connected = False

    async def trace(event: str, _info: Mapping[str, Any]) -> None:
        nonlocal is_connected
        if event.startswith("connection.connect_tcp."):
            is_connected = event.endswith(".complete")

    traced = {"trace": trace}
    try:
        async with (
            asyncio.timeout(timeout_seconds),
            httpx.AsyncClient(trust_env=False, verify=False, timeout=timeout_seconds) as client,  # noqa: S501  plain HTTP
        ):
            # 503 is an answer: not ready, and the notes say why.
            answer = (await client.get(f"{base_url}/readyz", extensions=traced)).json()
    except httpx.ConnectError as error:
        raise Unavailable("sidecar", f"no process listens at {base_url}") from error
    except (httpx.TimeoutException, TimeoutError) as error:
        if not is_connected:
            raise Unavailable(
                "sidecar", f"no connection to {base_url} within {timeout_seconds:g} s"
            ) from error
        why = f"the process at {base_url} does not answer within {timeout_seconds:g} s: it hangs"
        return Unknown(why, UnknownCause.REPLICA_HANGS)
    except (httpx.HTTPError, ValueError) as error:
        raise Unavailable("sidecar", f"{base_url} answers, but not as dlq-handler does") from error
    match answer:
        case {"gate_closed_by": dict(closed_by), "notes": dict(notes)}:
            pass
        case _:
            raise Unavailable("sidecar", f"{base_url} answers, but it is not dlq-handler")
    causes = [cause for cause in GateCause if closed_by.get(cause)]
    if not causes and closed_by.get(GateCause.RECOVERY) is None:
        # The note is as old as the last check: of one that hangs it says nothing yet.
        why = notes.get("gate", "it has not checked the database yet, or not lately")
        return Unknown(f"the replica at {base_url} answers: {why}", UnknownCause.REPLICA_UNSURE)
    return GateFact(causes=causes, explanation=notes.get("gate"), replica=base_url)
