"""The connections of one listener: bounded in number and in time, whatever clients send or do not send.

Promises: a listener never has more than `most` connections open. A connection beyond it takes the place of the oldest
one that has not sent a whole request; where each has, the new one is closed. Headers and body must arrive in time, and
an answer must be read in time. A request with a body that is too long, or of a length that it does not state, is
refused by its headers alone.
"""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Any

import h11
import structlog
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol, RequestResponseCycle

# Few at a time: between two rounds those that are open are served.
ACCEPTS_AT_ONCE = 16
BACKLOG = 128
# As uvicorn has it. h11's own limit of 16 KiB is less than some proxies send.
HEADER_BYTES = 65_536
TICK_SECONDS = 1.0
# After the system refused a descriptor; asking again at once would be refused at once.
PAUSE_SECONDS = 1.0
REPORT_SECONDS = 60.0

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    connections: int
    body_bytes: int
    """Of one request; 0: a request has no body."""
    header_seconds: float = 10.0
    """From the opening of the connection, or from the last answer."""
    body_seconds: float = 10.0
    read_seconds: float = 20.0
    """Time that a client may leave an answer unread."""

    def refusal(self, request: h11.Request) -> tuple[int, str] | None:
        """Status and text. Reads no part of the body: one-byte chunks cost a thousand times their size."""
        headers = dict(request.headers)
        if b"transfer-encoding" in headers:
            return 411, "State the length of the body as Content-Length. Transfer-Encoding is refused."
        # h11 has checked that it is a number.
        length = int(headers.get(b"content-length", b"0"))
        if length > self.body_bytes:
            return 413, f"The body has {length} bytes. The limit is {self.body_bytes}."
        return None


class Closing(StrEnum):
    """Why a connection was closed by the listener."""

    CROWDED = "crowded"
    SLOW = "slow"


class _Stage(Enum):
    HEADERS = auto()
    BODY = auto()
    ANSWER = auto()


class _CheckedRequests(h11.Connection):
    """Raises `RemoteProtocolError` for a request that the limits refuse, before its body is read."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(h11.SERVER, max_incomplete_event_size=HEADER_BYTES)
        self._limits = limits
        self.refusal: tuple[int, str] | None = None

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self.refusal = self._limits.refusal(event)
            if self.refusal is not None:
                raise h11.RemoteProtocolError(self.refusal[1])
        return event


class BoundedProtocol(H11Protocol):
    """uvicorn's protocol, with deadlines and with requests that are checked by their headers."""

    def __init__(
        self, *, limits: Limits, closed: Callable[["BoundedProtocol"], None], **uvicorn: Any
    ) -> None:
        super().__init__(**uvicorn)
        self.conn: _CheckedRequests = _CheckedRequests(limits)
        self._limits, self._closed = limits, closed
        self._stage_seen: tuple[_Stage, object] = (_Stage.HEADERS, None)
        self._stage_since = self.loop.time()
        self._unread_since: float | None = None

    @property
    def _stage(self) -> _Stage:
        # uvicorn does not declare that it is None until there is a request.
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            return _Stage.HEADERS
        return _Stage.BODY if cycle.more_body else _Stage.ANSWER

    def is_overdue(self, now: float) -> bool:
        # A stage is dated when it is first seen, so that a deadline is late by one tick at most.
        seen = self._stage, self.cycle
        if seen != self._stage_seen:
            self._stage_seen, self._stage_since = seen, now
        if self._unread_since is not None and now - self._unread_since > self._limits.read_seconds:
            return True
        waited = now - self._stage_since
        match seen[0]:
            case _Stage.HEADERS:
                return waited > self._limits.header_seconds
            case _Stage.BODY:
                return waited > self._limits.body_seconds
            case _Stage.ANSWER:
                return False

    @property
    def is_evictable(self) -> bool:
        # None: accepted a moment ago, and not handed over yet.
        transport: asyncio.Transport | None = self.transport
        return transport is not None and self._stage is not _Stage.ANSWER

    def abort(self) -> None:
        transport: asyncio.Transport | None = self.transport
        if transport is not None:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._closed(self)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread_since = self.loop.time()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unread_since = None

    def send_400_response(self, msg: str) -> None:
        status, text = self.conn.refusal or (400, msg)
        if self.conn.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            # In the middle of an answer no other can be given.
            self.transport.close()
            return
        body = text.encode()
        headers = [
            ("content-type", "text/plain; charset=utf-8"),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        for event in (
            h11.Response(status_code=status, headers=headers, reason=STATUS_PHRASES[status]),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


class Connections:
    """Accepts for one listener. asyncio's own way accepts without a bound, and logs each descriptor that it lacks."""

    def __init__(
        self, listening: socket.socket, *, name: str, limits: Limits, protocol: Callable[..., BoundedProtocol]
    ) -> None:
        """`protocol(closed=…)` makes one for a new connection."""
        self._listening, self._name, self._limits, self._protocol = listening, name, limits, protocol
        self._loop = asyncio.get_running_loop()
        # In the order in which they were opened.
        self._open: dict[BoundedProtocol, None] = {}
        self._handing_over: set[asyncio.Task[None]] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._closed_counts = dict.fromkeys(Closing, 0)
        self._reported_at = dict.fromkeys(Closing, float("-inf"))
        self._is_starved = False

    def start(self) -> None:
        self._listening.setblocking(False)
        self._accept()
        self._tick()

    def stop(self) -> None:
        """Accept no more. Those that are open are the server's to end."""
        self._loop.remove_reader(self._listening)
        for timer in self._timers.values():
            timer.cancel()

    def _accept(self) -> None:
        self._loop.add_reader(self._listening, self._accept_some)

    def _accept_some(self) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                accepted, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(error)
                return
            self._is_starved = False
            if len(self._open) >= self._limits.connections and not self._has_made_room():
                accepted.close()
                continue
            accepted.setblocking(False)
            protocol = self._protocol(closed=self._forget)
            self._open[protocol] = None
            task = self._loop.create_task(self._hand_over(accepted, protocol))
            self._handing_over.add(task)
            task.add_done_callback(self._handing_over.discard)

    def _pause(self, error: OSError) -> None:
        """The system has no descriptor or no memory: those that are open end meanwhile."""
        if not self._is_starved:
            log.error("listener.descriptors_exhausted", listener=self._name, error=str(error))
        self._is_starved = True
        self._loop.remove_reader(self._listening)
        self._timers["accept"] = self._loop.call_later(PAUSE_SECONDS, self._accept)

    def _has_made_room(self) -> bool:
        self._closed_counts[Closing.CROWDED] += 1
        for one in self._open:
            if one.is_evictable:
                one.abort()
                self._forget(one)
                return True
        return False

    async def _hand_over(self, accepted: socket.socket, protocol: BoundedProtocol) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: protocol, accepted)
        except OSError:
            # The client has already disconnected.
            accepted.close()
            self._forget(protocol)

    def _forget(self, protocol: BoundedProtocol) -> None:
        self._open.pop(protocol, None)

    def _tick(self) -> None:
        now = self._loop.time()
        for one in [one for one in self._open if one.is_overdue(now)]:
            self._closed_counts[Closing.SLOW] += 1
            one.abort()
            self._forget(one)
        for reason in Closing:
            if self._closed_counts[reason] and now - self._reported_at[reason] >= REPORT_SECONDS:
                self._report(reason)
                self._reported_at[reason] = now
        self._timers["tick"] = self._loop.call_later(TICK_SECONDS, self._tick)

    def _report(self, reason: Closing) -> None:
        count, self._closed_counts[reason] = self._closed_counts[reason], 0
        if reason is Closing.CROWDED:
            most = self._limits.connections
            log.warning("listener.full", listener=self._name, closed=count, most_connections=most)
        else:
            log.info("listener.closed_slow", listener=self._name, closed=count)
