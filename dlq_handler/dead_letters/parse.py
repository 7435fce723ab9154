"""Read one dead letter. Total: whatever the sender put in, the answer is a `DeadLetter`, if need be one with a flaw."""

import gc
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NoReturn

from dlq_handler.broker.consume.raw_message import CutBody, RawMessage
from dlq_handler.dead_letters.headers_as_json import headers_as_json
from dlq_handler.dead_letters.letter import DeadLetter, Death, without_fields
from dlq_handler.dead_letters.parse_deaths import first_death_queue, newest_death
from dlq_handler.dead_letters.parse_prefix import read_prefix
from dlq_handler.host.names import DISPATCH_MESSAGE_TYPE, REQUESTED_KEY
from dlq_handler.text import int64_or_none, storable

# How quorum queues count: failed deliveries, and (RabbitMQ 4) all of them.
_DELIVERY_COUNTS = ("x-delivery-count", "x-acquired-count")


class _Flaw(Exception):
    """Ends the reading of a body; its text is what the operator reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Envelope:
    message_type: str
    message_id: str | None
    correlation_id: str | None
    execution_id: int | None
    worker_id: int | None
    action_ref: str | None
    attempt_updated_at: datetime | None
    parse_error: str | None


_NOTHING = _Envelope(
    message_type="",
    message_id=None,
    correlation_id=None,
    execution_id=None,
    worker_id=None,
    action_ref=None,
    attempt_updated_at=None,
    parse_error=None,
)


def read_dead_letter(raw: RawMessage, *, body_limit_bytes: int, key_prefix: str = "") -> DeadLetter:
    """A prefix makes it another letter than the same message without: a copy never passes for the original."""
    try:
        return _read(raw, body_limit_bytes=body_limit_bytes, key_prefix=key_prefix)
    except (
        Exception
    ) as error:  # the caller is the reader of the socket: an error there stops all dead letters
        return _unread(raw, error, body_limit_bytes=body_limit_bytes, key_prefix=key_prefix)


def _unread(raw: RawMessage, error: Exception, *, body_limit_bytes: int, key_prefix: str) -> DeadLetter:
    """For content that the code below was not written for. By its type alone: an error's text may quote the sender."""
    unread = without_fields(
        key=key_prefix + hashlib.sha256(raw.raw_properties + raw.body_sha256.encode()).hexdigest(),
        body=raw.body[:body_limit_bytes],
        body_size=raw.body_size,
        redelivered=raw.redelivered,
        parse_error=f"cannot be read: {type(error).__name__}",
    )
    return replace(unread, exchange=storable(raw.exchange), routing_key=storable(raw.routing_key))


def _read(raw: RawMessage, *, body_limit_bytes: int, key_prefix: str) -> DeadLetter:
    envelope, parse_error = _NOTHING, raw.undecodable
    try:
        envelope = _read_cut(raw.body, raw.cut) if raw.cut else _read_envelope(raw.body)
    except _Flaw as found:
        parse_error = parse_error or str(found)
    death = newest_death(raw.headers)
    routing_key = storable(raw.routing_key)
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
        routing_key=routing_key,
        redelivered=raw.redelivered,
        body=raw.body[:body_limit_bytes],
        body_size=raw.body_size,
        action_ref=envelope.action_ref,
        parse_error=parse_error or envelope.parse_error,
        headers=headers_as_json(raw.headers),
        deliveries=_deliveries(raw),
    )


def _deliveries(raw: RawMessage) -> int:
    """What a sender wrote into these headers is there at a first delivery only: then a quorum queue replaces it."""
    if not raw.redelivered:
        return 0
    counts = (int64_or_none(raw.headers.get(name)) for name in _DELIVERY_COUNTS)
    return max((count for count in counts if count is not None and count > 0), default=0)


def _read_envelope(body: bytes) -> _Envelope:
    try:
        envelope = _decode(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise _Flaw("body is not UTF-8") from error
    except RecursionError as error:
        raise _Flaw("body is nested too deeply") from error
    except ValueError as error:
        raise _Flaw(f"body is not JSON: {storable(str(error))[:200]}") from error
    if not isinstance(envelope, dict):
        raise _Flaw(f"body is a JSON {type(envelope).__name__}, not an envelope")
    message_type, payload = envelope.get("message_type"), envelope.get("payload")
    if not isinstance(message_type, str):
        raise _Flaw("envelope without message_type")
    if not isinstance(payload, dict):
        raise _Flaw("envelope without payload")
    execution_id = int64_or_none(payload.get("execution_id"))
    parse_error = None
    if execution_id is None and message_type == DISPATCH_MESSAGE_TYPE:
        parse_error = f"execution_id is {_described(payload)}, not an integer of 64 bits"
    return _Envelope(
        message_type=storable(message_type)[:200],
        message_id=_text(envelope.get("message_id")),
        correlation_id=_text(envelope.get("correlation_id")),
        execution_id=execution_id,
        worker_id=int64_or_none(payload.get("worker_id")),
        action_ref=_text(payload.get("action_ref")),
        attempt_updated_at=read_time(payload.get("scheduled_attempt_updated_at")),
        parse_error=parse_error,
    )


def _read_cut(beginning: bytes, cut: CutBody) -> _Envelope:
    """Without the stamp, which comes last: in a large body it is out of reach."""
    fields = read_prefix(beginning)
    # Behind the colon stands what differs from one dead letter to the next: the rest makes them one category.
    sizes = f"{cut.size} bytes, of which the first {len(beginning)} are read"
    parse_error = None
    if fields.execution_id is None:
        parse_error = f"body too large, and no execution_id at its beginning: {sizes}"
    elif fields.message_type is None:
        parse_error = f"body too large, and no message_type at its beginning: {sizes}"
    return _Envelope(
        message_type=storable(fields.message_type or "")[:200],
        message_id=None,
        correlation_id=None,
        execution_id=fields.execution_id,
        worker_id=fields.worker_id,
        action_ref=_text(fields.action_ref),
        attempt_updated_at=None,
        parse_error=parse_error,
    )


def _refuse_constant(name: str) -> NoReturn:
    # Python's parser takes NaN and Infinity, which no JSON writer may send and PostgreSQL's jsonb refuses.
    raise ValueError(f"{name} is not a JSON number")


_LARGE_TEXT = 65_536

# Made once: json.loads makes another one for each call that names a parameter.
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _decode(text: str) -> object:
    """With the garbage collector at rest for a large text: 1 MiB of small values makes it run hundreds of times, which
    takes ten times as long as the parsing, and what JSON holds has no cycles to be found.
    """
    if len(text) < _LARGE_TEXT or not gc.isenabled():
        return _DECODER.decode(text)
    gc.disable()
    try:
        return _DECODER.decode(text)
    finally:
        gc.enable()


def _described(payload: Mapping[str, object]) -> str:
    if "execution_id" not in payload:
        return "missing"
    value = payload["execution_id"]
    return "null" if value is None else f"a {type(value).__name__}"


def _text(value: object) -> str | None:
    return storable(value)[:500] if isinstance(value, str) and value else None


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
