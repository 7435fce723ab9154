"""Hostile messages: what a sender can put into properties, headers and body, made at random from a seed."""

import json
import math
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dlq_handler.topology.canary import CANARY_MESSAGE_TYPE, CANARY_QUEUE

HEADERS, CORRELATION_ID, EXPIRATION, MESSAGE_ID, TIMESTAMP, TYPE = (
    0x2000,
    0x0400,
    0x0100,
    0x0080,
    0x0040,
    0x0020,
)

NUMBERS = (
    0,
    -1,
    1,
    2**31 - 1,
    2**31,
    2**32,
    2**53 + 1,
    2**63 - 1,
    2**63,
    -(2**63),
    -(2**63) - 1,
    2**64,
    9_999_999_999_999_999_999,
    10**40,
    -(10**400),
)
TEXTS = (
    "",
    "\x00",
    "a\x00b",
    "\ud800",
    "\udfff\ud800",
    "\u202e\u0007\x1b[2J",
    "\U0001f4a5" * 600,
    "x" * 3000,
    "'; DROP TABLE dlq_handler.letter; --",
    "{id}",
    "%s%n:name",
    "NaN",
    "\\u0000",
    "\\ud83d",
    "rejected",
    "expired",
    "none",
)
TIMES = (
    "",
    "now",
    "infinity",
    "-infinity",
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59.999999Z",
    "9999-12-31T23:59:59.999999-14:00",
    "2026-11-16T12:00:00",
    "2026-11-16T12:00:00.123456789Z",
    "4713-01-01 BC",
)
LARGEST_TABLE = 120_000
LONG_NUMBER = "worker.9999999999999999999.executions"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostileMessage:
    """One message as bytes: what the frames of a publish carry."""

    routing_key: bytes
    properties: bytes
    """With their flags."""
    body: bytes
    may_be_refused: bool = False
    """The broker itself may not take these properties."""


class Hostility:
    """Makes hostile values; the same seed makes the same ones."""

    def __init__(self, seed: int, *, execution_ids: Sequence[int] = ()) -> None:
        """`execution_ids`: executions that exist. Messages about them carry a wrong stamp or none of the marks."""
        self._random = random.Random(seed)
        self._execution_ids = tuple(execution_ids)
        self._made = 0
        self._is_odd = False
        """Properties of the message in hand may hold what pamqp cannot decode."""

    # ------------------------------------------------------------------ values

    def number(self) -> int:
        return self._random.choice(NUMBERS)

    def text(self) -> str:
        return self._random.choice(TEXTS)

    def scalar(self) -> object:
        return self._pick(
            self.number,
            self.text,
            lambda: self._random.choice(TIMES),
            lambda: None,
            lambda: self._random.random() < 0.5,
            lambda: self._random.choice((0.0, -0.0, 1.5, 1e308, 5e-324, float("nan"), float("inf"))),
        )

    def value(self, depth: int = 3) -> object:
        if depth == 0 or self._random.random() < 0.6:
            return self.scalar()
        if self._random.random() < 0.5:
            return [self.value(depth - 1) for _ in range(self._random.randrange(4))]
        return {self.text(): self.value(depth - 1) for _ in range(self._random.randrange(4))}

    def worker_queue(self) -> str:
        return self._random.choice(
            (
                LONG_NUMBER,
                f"worker.{self.number()}.executions",
                f"worker.{'9' * self._random.randrange(1, 300)}.executions",
                "worker..executions",
                "worker.٣.executions",
                "worker.-1.executions",
                "worker.007.executions",
                CANARY_QUEUE,
                self.text(),
            )
        )

    # ------------------------------------------------------------------ bodies

    def envelope(self) -> dict[str, object]:
        """Like a dispatch, with some fields replaced. Never one that fails an execution."""
        payload: dict[str, object] = {
            "execution_id": self._pick(self.number, lambda: self._random.choice(self._execution_ids or (0,))),
            "worker_id": 7,
            "action_ref": "core.echo",
            "config": None,
            # Of no execution's attempt, so that a message about a real one is stale.
            "scheduled_attempt_updated_at": "2001-01-01T00:00:00.000001Z",
        }
        for name in list(payload):
            if self._random.random() < 0.3:
                payload[name] = self.value()
        if payload["execution_id"] in self._execution_ids:
            payload["scheduled_attempt_updated_at"] = "2001-01-01T00:00:00.000001Z"
        envelope: dict[str, object] = {
            "message_id": self.text(),
            "correlation_id": self.text(),
            "message_type": "ExecutionRequested",
            "payload": payload,
        }
        if self._random.random() < 0.2:
            envelope["message_type"] = self._pick(lambda: CANARY_MESSAGE_TYPE, self.scalar)
        if self._random.random() < 0.1:
            envelope["payload"] = self.value()
        return envelope

    def body(self) -> bytes:
        made: bytes = self._pick(
            self._json,
            self._json,
            self._json,
            lambda: self._random.randbytes(self._random.randrange(200)),
            lambda: self._json()[: self._random.randrange(300)],
            lambda: b"[" * self._random.choice((10, 5_000, 100_000)),
            lambda: b'{"a":' * self._random.choice((10, 5_000, 50_000)),
            lambda: b"1" * self._random.choice((10, 5_000)),
            lambda: (
                b'{"message_type":"ExecutionRequested","payload":{"execution_id":%d}}'
                % (10**5000 // 7 % 10**4200)
            ),
            self._duplicate_keys,
            lambda: b"",
            lambda: b"hello",
        )
        return made

    def _json(self) -> bytes:
        # With lone surrogates as escapes, or as the three bytes that no decoder takes.
        escaped = json.dumps(self.envelope())
        if self._random.random() < 0.7:
            return escaped.encode()
        return json.dumps(self.envelope(), ensure_ascii=False).encode("utf-8", "surrogatepass")

    def _duplicate_keys(self) -> bytes:
        return b'{"payload":{},"message_type":"a","payload":%s,"message_type":"ExecutionRequested"}' % (
            json.dumps(self.envelope()["payload"]).encode()
        )

    # ------------------------------------------------------------------ headers

    def deaths(self) -> object:
        """A forged x-death; its times are those that AMQP has a type for."""
        if self._random.random() < 0.2:
            return self.value()
        return [self._death() for _ in range(self._random.randrange(4))]

    def _death(self) -> object:
        if self._random.random() < 0.1:
            return self.value()
        return {
            "queue": self._pick(self.worker_queue, self.value),
            "reason": self._pick(self.text, self.value),
            "time": self._pick(
                lambda: AmqpTime(self._random.choice((0, 1, 1_700_000_000, 253_402_300_799))), self.value
            ),
            "count": self._pick(self.number, self.value),
            "exchange": self.value(),
            "routing-keys": self.value(),
        }

    def headers(self) -> dict[str, object]:
        headers: dict[str, object] = {}
        for name in ("x-first-death-queue", "x-last-death-queue"):
            if self._random.random() < 0.4:
                headers[name] = self._pick(self.worker_queue, self.value)
        for name in (
            "x-first-death-reason",
            "x-last-death-reason",
            "x-delivery-count",
            "x-acquired-count",
            "CC",
        ):
            if self._random.random() < 0.2 and name != "CC":
                headers[name] = self.value()
        if self._random.random() < 0.6:
            headers["x-death"] = self.deaths()
        if self._random.random() < 0.1:
            headers |= {f"{number}{self.text()[:50]}": self.scalar() for number in range(300)}
        # More than a frame holds is not taken by the broker.
        while len(table(headers, self._random)) > LARGEST_TABLE:
            del headers[self._random.choice(list(headers))]
        return headers

    # ------------------------------------------------------------------ messages

    def message(self) -> HostileMessage:
        self._made += 1
        routing_key = self._pick(
            lambda: b"execution.dispatch.worker.7",
            lambda: b"execution.dispatch.worker." + b"9" * 30,
            lambda: self._random.randbytes(self._random.randrange(255)),
            lambda: b"\x00" * 10,
        )
        self._is_odd = self._random.random() < 0.25
        if self._random.random() < 0.02:
            raw = self._damaged(self.properties())
            return HostileMessage(
                routing_key=routing_key, properties=raw, body=self.body(), may_be_refused=True
            )
        return HostileMessage(routing_key=routing_key, properties=self.properties(), body=self.body())

    def _damaged(self, properties: bytes) -> bytes:
        damaged = bytearray(properties)
        for _ in range(self._random.randrange(1, 4)):
            damaged[self._random.randrange(len(damaged))] = self._random.randrange(256)
        return bytes(damaged)

    def properties(self) -> bytes:
        """Well framed, with values that no client library would send."""
        flags, content = HEADERS, table(self.headers(), self._random)
        if self._random.random() < 0.3:
            flags, content = flags | CORRELATION_ID, content + short(self._short_bytes())
        # Of its own, so that two messages are never taken for one.
        flags, content = flags | MESSAGE_ID, content + short(b"%d " % self._made + self._short_bytes()[:200])
        if self._random.random() < 0.3:
            odd = (1_700_000_000_000_000, 2**63, 2**64 - 1) if self._is_odd else ()
            moment = self._random.choice((0, 1_700_000_000, *odd))
            flags, content = flags | TIMESTAMP, content + struct.pack(">Q", moment)
        if self._random.random() < 0.2:
            flags, content = flags | TYPE, content + short(self._short_bytes())
        return struct.pack(">H", flags) + content

    def _short_bytes(self) -> bytes:
        if self._is_odd:
            return self._random.randbytes(self._random.randrange(255))
        return self.text().encode("utf-8", "backslashreplace")[:240].decode("utf-8", "ignore").encode()

    def _pick(self, *choices: Callable[[], Any]) -> Any:
        return self._random.choice(choices)()


@dataclass(frozen=True, slots=True)
class AmqpTime:
    """Seconds since 1970, to be sent as AMQP's own type for a time."""

    seconds: int


def short(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def table(fields: dict[str, object], chance: random.Random) -> bytes:
    content = b"".join(
        short(name.encode("utf-8", "backslashreplace")[:60]) + _field(value, chance)
        for name, value in fields.items()
    )
    return struct.pack(">I", len(content)) + content


def _field(value: object, chance: random.Random) -> bytes:
    """One value with the octet that names its type."""
    match value:
        case None:
            return b"V"
        case bool():
            return b"t" + bytes([value])
        case int() if -(2**63) <= value < 2**63:
            return b"l" + struct.pack(">q", value)
        case int():
            # A decimal: a scale, and a number of 32 bits.
            return b"D" + struct.pack(">Bi", chance.randrange(256), chance.randrange(-(2**31), 2**31))
        case float():
            # Erlang has no number for these: the broker closes the connection of the sender.
            value = value if math.isfinite(value) else 1e308
            return b"d" + struct.pack(">d", value)
        case AmqpTime():
            return b"T" + struct.pack(">Q", value.seconds)
        case str():
            raw = value.encode("utf-8", "surrogatepass")
            return chance.choice((b"S", b"x")) + struct.pack(">I", len(raw)) + raw
        case list():
            items = b"".join(_field(item, chance) for item in value)
            return b"A" + struct.pack(">I", len(items)) + items
        case dict():
            return b"F" + table(value, chance)
        case _:
            raise TypeError(f"no field for {value!r}")
