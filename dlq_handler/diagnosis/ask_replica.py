"""Ask a replica for its safety gate: this process, or the one on this machine over its ops listener. Reads only.

An address that refuses the connection, or accepts none in time, is `Unavailable`: no process, or a firewall that drops
packets. A process that accepts the connection and does not answer hangs.
"""

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import httpx
from pydantic import TypeAdapter

from dlq_handler.diagnosis.view import GateFact, Unknown, UnknownCause
from dlq_handler.errors import Unavailable
from dlq_handler.safety.gate import GateCause, GateState
from dlq_handler.safety.gate_service import Gate


@dataclass(frozen=True, slots=True, kw_only=True)
class _Readyz:
    """What is read of the answer."""

    gate: GateState


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
        return gate_fact(await self._gate.read_state())

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


def gate_fact(state: GateState) -> GateFact | Unknown:
    if state.unknown_explanation is not None:
        return Unknown(state.unknown_explanation, UnknownCause.REPLICA_UNSURE)
    # Every process begins with a young connection.
    closed_at = [at for cause, at in state.closed_at.items() if cause is not GateCause.YOUNG_LINK]
    return GateFact(
        causes=tuple(state.causes),
        explanation="; ".join(state.causes.values()) or None,
        since=min(closed_at, default=None),
    )


async def ask_for_gate(base_url: str, *, timeout_seconds: float = 2.0) -> GateFact | Unknown:
    """Its /readyz has the state of its gate."""
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
            # 503 is an answer: not ready.
            answer = await client.get(f"{base_url}/readyz", extensions=traced)
            fact = gate_fact(TypeAdapter(_Readyz).validate_json(answer.content).gate)
    except httpx.ConnectError as error:
        raise Unavailable("replica", f"no process listens at {base_url}") from error
    except (httpx.TimeoutException, TimeoutError) as error:
        if not is_connected:
            raise Unavailable(
                "replica", f"no connection to {base_url} within {timeout_seconds:g} s"
            ) from error
        why = f"the process at {base_url} does not answer within {timeout_seconds:g} s: it hangs"
        return Unknown(why, UnknownCause.REPLICA_HANGS)
    except (httpx.HTTPError, ValueError) as error:
        raise Unavailable(
            "replica", f"{base_url} answers, but not as this version of dlq-handler does"
        ) from error
    if isinstance(fact, Unknown):
        return replace(fact, explanation=f"the replica at {base_url} answers: {fact.explanation}")
    return replace(fact, replica=base_url)
