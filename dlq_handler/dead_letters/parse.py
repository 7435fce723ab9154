"""Read one dead letter: its envelope, its deaths, its headers. Total: whatever its sender wrote, the result is a
`DeadLetter`, if need be one with a `parse_error`. Any client may publish to the exchange: a header may have any type.
"""

import gc
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import NoReturn

from dlq_handler.broker.delivery import CutBody, RawMessage
from dlq_handler.dead_letters.letter import UNKNOWN_REASON, DeadLetter, Death, ParseProblem, without_fields
from dlq_handler.dead_letters.parse_prefix import read_prefix
from dlq_handler.host.names import DISPATCH_MESSAGE_TYPE, REQUESTED_KEY
from dlq_handler.text import int64_or_none, storable

# How quorum queues count: failed deliveries, and (RabbitMQ 4) all of them.
_DELIVERY_COUNTS = ("x-delivery-count", "x-acquired-count")


class _Flaw(Exception):
    """Ends the parsing of a body; its text becomes the `parse_error`."""

    def __init__(self, problem: ParseProblem, text: str) -> None:
        super().__init__(text)
        self.problem = problem


@dataclass(frozen=True, slots=True, kw_only=True)
class _Envelope:
    message_type: str = ""
    message_id: str | None = None
    correlation_id: str | None = None
    execution_id: int | None = None
    worker_id: int | None = None
    action_ref: str | None = None
    attempt_updated_at: datetime | None = None
    parse_error: str | None = None
    parse_problem: ParseProblem | None = None


def read_dead_letter(raw: RawMessage, *, body_limit_bytes: int, key_prefix: str = "") -> DeadLetter:
    """With a `key_prefix` a copy never has the key of the original."""
    try:
        return _read(raw, body_limit_bytes=body_limit_bytes, key_prefix=key_prefix)
    # The caller reads the socket: an error there stops all dead letters.
    except Exception as error:
        return _unread(raw, error, body_limit_bytes=body_limit_bytes, key_prefix=key_prefix)


def _unread(raw: RawMessage, error: Exception, *, body_limit_bytes: int, key_prefix: str) -> DeadLetter:
    """For content that the code below was not written for. By its type alone: an error's text may quote the sender."""
    unread = without_fields(
        key=key_prefix + hashlib.sha256(raw.raw_properties + raw.body_sha256.encode()).hexdigest(),
        body=raw.body[:body_limit_bytes],
        body_size=raw.body_size,
        redelivered=raw.redelivered,
        parse_error=f"cannot be read: {type(error).__name__}",
        parse_problem=ParseProblem.PARSER_ERROR,
    )
    return replace(unread, exchange=storable(raw.exchange), routing_key=storable(raw.routing_key))


def _read(raw: RawMessage, *, body_limit_bytes: int, key_prefix: str) -> DeadLetter:
    try:
        envelope = _read_cut(raw.body, raw.cut) if raw.cut else _read_envelope(raw.body)
    except _Flaw as found:
        envelope = _Envelope(parse_error=str(found), parse_problem=found.problem)
    if raw.undecodable is not None:
        envelope = replace(
            envelope, parse_error=raw.undecodable, parse_problem=ParseProblem.PROPERTIES_UNDECODABLE
        )
    death = newest_death(raw.headers)
    message_id = _text(raw.message_id) or envelope.message_id
    return DeadLetter(
        key=key_prefix + _key(raw, message_id, death, envelope),
        message_id=message_id,
        correlation_id=_text(raw.correlation_id) or envelope.correlation_id,
        message_type=envelope.message_type or None,
        execution_id=envelope.execution_id,
        worker_id=envelope.worker_id,
        attempt_updated_at=envelope.attempt_updated_at,
        death=death,
        first_death_queue=first_death_queue(raw.headers),
        exchange=storable(raw.exchange),
        routing_key=storable(raw.routing_key),
        redelivered=raw.redelivered,
        body=raw.body[:body_limit_bytes],
        body_size=raw.body_size,
        action_ref=envelope.action_ref,
        parse_error=envelope.parse_error,
        parse_problem=envelope.parse_problem,
        headers=headers_as_json(raw.headers),
        deliveries=_deliveries(raw),
    )


def _deliveries(raw: RawMessage) -> int:
    """At the first delivery these headers may be the sender's; after that a quorum queue has replaced them."""
    if not raw.redelivered:
        return 0
    counts = (int64_or_none(raw.headers.get(name)) for name in _DELIVERY_COUNTS)
    return max((count for count in counts if count is not None and count > 0), default=0)


def _read_envelope(body: bytes) -> _Envelope:
    try:
        envelope = _decode(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise _Flaw(ParseProblem.BODY_NOT_UTF8, "body is not UTF-8") from error
    except RecursionError as error:
        raise _Flaw(ParseProblem.BODY_NESTED_TOO_DEEPLY, "body is nested too deeply") from error
    except ValueError as error:
        text = f"body is not JSON: {storable(str(error))[:200]}"
        raise _Flaw(ParseProblem.BODY_NOT_JSON, text) from error
    if not isinstance(envelope, dict):
        text = f"body is a JSON {type(envelope).__name__}, not an envelope"
        raise _Flaw(ParseProblem.BODY_NOT_AN_ENVELOPE, text)
    message_type, payload = envelope.get("message_type"), envelope.get("payload")
    if not isinstance(message_type, str):
        raise _Flaw(ParseProblem.MESSAGE_TYPE_MISSING, "envelope without message_type")
    if not isinstance(payload, dict):
        raise _Flaw(ParseProblem.PAYLOAD_MISSING, "envelope without payload")
    execution_id = int64_or_none(payload.get("execution_id"))
    parse_error = parse_problem = None
    if execution_id is None and message_type == DISPATCH_MESSAGE_TYPE:
        parse_problem, found = _execution_id_problem(payload)
        parse_error = f"execution_id is {found}, not an integer of 64 bits"
    return _Envelope(
        message_type=storable(message_type)[:200],
        message_id=_text(envelope.get("message_id")),
        correlation_id=_text(envelope.get("correlation_id")),
        execution_id=execution_id,
        worker_id=int64_or_none(payload.get("worker_id")),
        action_ref=_text(payload.get("action_ref")),
        attempt_updated_at=read_time(payload.get("scheduled_attempt_updated_at")),
        parse_error=parse_error,
        parse_problem=parse_problem,
    )


def _read_cut(beginning: bytes, cut: CutBody) -> _Envelope:
    """Without the stamp, which comes last: in a large body it is out of reach."""
    fields = read_prefix(beginning)
    sizes = f"{cut.size} bytes, of which the first {len(beginning)} are read"
    parse_error = parse_problem = None
    if fields.execution_id is None:
        parse_problem = ParseProblem.LARGE_BODY_WITHOUT_EXECUTION_ID
        parse_error = f"body too large, and no execution_id at its beginning: {sizes}"
    elif fields.message_type is None:
        parse_problem = ParseProblem.LARGE_BODY_WITHOUT_MESSAGE_TYPE
        parse_error = f"body too large, and no message_type at its beginning: {sizes}"
    return _Envelope(
        message_type=storable(fields.message_type or "")[:200],
        execution_id=fields.execution_id,
        worker_id=fields.worker_id,
        action_ref=_text(fields.action_ref),
        parse_error=parse_error,
        parse_problem=parse_problem,
    )


def _refuse_constant(name: str) -> NoReturn:
    # Python's parser takes NaN and Infinity, which no JSON writer may send and PostgreSQL's jsonb refuses.
    raise ValueError(f"{name} is not a JSON number")


_LARGE_TEXT = 65_536

# Made once: json.loads makes another one for each call that names a parameter.
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _decode(text: str) -> object:
    """Without the garbage collector for a large text: with 1 MiB of small values it runs hundreds of times and takes
    ten times as long as the parsing. JSON values have no cycles.
    """
    if len(text) < _LARGE_TEXT or not gc.isenabled():
        return _DECODER.decode(text)
    gc.disable()
    try:
        return _DECODER.decode(text)
    finally:
        gc.enable()


def _execution_id_problem(payload: Mapping[str, object]) -> tuple[ParseProblem, str]:
    """The problem, and words for what was found."""
    if "execution_id" not in payload:
        return ParseProblem.EXECUTION_ID_MISSING, "missing"
    value = payload["execution_id"]
    if value is None:
        return ParseProblem.EXECUTION_ID_NULL, "null"
    return ParseProblem.EXECUTION_ID_NOT_INTEGER, f"a {type(value).__name__}"


def read_time(value: object) -> datetime | None:
    """An RFC 3339 time with its offset. Without one it could mean any hour, so it counts as unparsable."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        return moment.astimezone(UTC) if moment.tzinfo else None
    except (ValueError, OverflowError):
        return None


def _key(raw: RawMessage, message_id: str | None, death: Death | None, envelope: _Envelope) -> str:
    """Identity of a dead letter: a redelivery has the same key, another death of the same message has another.

    All rejected requests of one execution have one key. Without a worker there is one for each request, and they
    would be thousands of records that say the same.
    """
    is_request = raw.routing_key == REQUESTED_KEY and envelope.message_type == DISPATCH_MESSAGE_TYPE
    is_rejected = death is not None and death.reason == "rejected"
    if is_request and is_rejected and envelope.execution_id is not None and envelope.worker_id is None:
        parts = ["rejected request", raw.routing_key, str(envelope.execution_id)]
        return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()
    parts = [
        message_id or "body:" + raw.body_sha256,
        ""
        if raw.undecodable is None
        else hashlib.sha256(raw.raw_properties + raw.body_sha256.encode()).hexdigest(),
        (death.queue if death else None) or "",
        death.reason if death else "",
        death.time.isoformat() if death and death.time else "",
        str(death.count if death else 0),
        raw.routing_key,
        envelope.attempt_updated_at.isoformat() if envelope.attempt_updated_at else "",
        # Not every sender makes its message ids unique; two executions must never share a key.
        str(envelope.execution_id),
    ]
    return hashlib.sha256("\x1f".join(parts).encode("utf-8", "backslashreplace")).hexdigest()


def newest_death(headers: Mapping[str, object]) -> Death | None:
    """The last death: the one that x-last-death-* names, else the newest by time, else the first."""
    deaths = _deaths(headers.get("x-death"))
    last_queue = _text(headers.get("x-last-death-queue"))
    last_reason = _text(headers.get("x-last-death-reason"))
    if last_queue is not None:
        for death in deaths:
            if death.queue == last_queue and last_reason in (None, death.reason):
                return death
        return Death(
            queue=last_queue,
            reason=last_reason or UNKNOWN_REASON,
            time=None,
            count=1,
            exchange=_text(headers.get("x-last-death-exchange")),
        )
    if deaths:
        # Position alone is not enough: another broker, or a shovel, may append instead of prepend.
        # max() keeps the first of equals, and the broker puts the newest first.
        return max(deaths, key=lambda death: death.time or datetime.min.replace(tzinfo=UTC))
    first = first_death_queue(headers)
    if first is None:
        return None
    reason = _text(headers.get("x-first-death-reason")) or UNKNOWN_REASON
    return Death(queue=first, reason=reason, time=None, count=1)


def first_death_queue(headers: Mapping[str, object]) -> str | None:
    named = _text(headers.get("x-first-death-queue"))
    if named is not None:
        return named
    deaths = _deaths(headers.get("x-death"))
    return deaths[-1].queue if deaths else None


def _deaths(value: object) -> list[Death]:
    if not isinstance(value, list):
        return []
    return [_death(entry) for entry in value if isinstance(entry, Mapping)]


def _death(entry: Mapping[str, object]) -> Death:
    count = int64_or_none(entry.get("count"))
    return Death(
        queue=_text(entry.get("queue")),
        reason=_text(entry.get("reason")) or UNKNOWN_REASON,
        time=_moment(entry.get("time")),
        count=1 if count is None or count < 0 else count,
        exchange=_text(entry.get("exchange")),
    )


def _moment(value: object) -> datetime | None:
    if not isinstance(value, datetime):
        return None
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _text(value: object) -> str | None:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "backslashreplace")
    return storable(value)[:500] if isinstance(value, str) and value else None


LONGEST = 8192
_LONGEST_TEXT = 500
_MOST_ITEMS = 50
_DEEPEST = 6

CUT = "…"


def headers_as_json(headers: Mapping[str, object]) -> str:
    """A JSON object of limited length that PostgreSQL accepts, whatever the headers are."""
    try:
        text = _ENCODE(headers)
    except (TypeError, ValueError, RecursionError):
        # A key that is not text, NaN or infinity, or tables that are nested too deeply.
        text = ""
    # Most headers are short, and contain nothing that jsonb refuses.
    if text and len(text) <= LONGEST and "\\u0000" not in text and "\\ud" not in text:
        return text
    return _bounded(headers)


def _as_text(value: object) -> str:
    """For types that JSON does not have."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    return str(value)


# json.dumps would build an encoder for each call. AMQP tables have no cycles.
_ENCODE = json.JSONEncoder(
    separators=(",", ":"), allow_nan=False, check_circular=False, default=_as_text
).encode


def _bounded(headers: Mapping[str, object]) -> str:
    """As many of the first ones as fit, long values cut; then the number of those left out."""
    kept: dict[str, object] = {}
    room = LONGEST - 200
    for name, value in headers.items():
        shown = {storable(str(name))[:_LONGEST_TEXT]: _plain(value, _DEEPEST)}
        room -= len(_ENCODE(shown))
        if room < 0:
            return _ENCODE(kept | {CUT: f"{len(headers) - len(kept)} more headers, too long to be kept"})
        kept |= shown
    return _ENCODE(kept)


def _plain(value: object, depth: int) -> object:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping | list | tuple) and depth == 0:
        return CUT
    if isinstance(value, Mapping):
        some = list(value.items())[:_MOST_ITEMS]
        return {storable(str(name))[:_LONGEST_TEXT]: _plain(inner, depth - 1) for name, inner in some}
    if isinstance(value, list | tuple):
        return [_plain(inner, depth - 1) for inner in value[:_MOST_ITEMS]]
    text = storable(value if isinstance(value, str) else _as_text(value))
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + CUT
