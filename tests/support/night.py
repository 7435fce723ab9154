"""The night of the pictures: what died, when and of what, in the hour before `now` and the day before that. Pure.

02:26 worker-python falls silent; one TTL later its messages expire, two dozen a minute. In between a queue of
worker-shell overflows, a sender forgets an execution_id, and for three minutes no replica runs. The same letters at
every call: a picture may be compared with the one before, and a test may count.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

from dlq_handler.broker.delivery import RawMessage
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.dead_letters.parse import read_dead_letter
from sandbox.attune.messages import rfc3339

NIGHT = UUID("0a7e5f0c-5a56-4b0c-9b7e-2f6f5d1c0b11")
TTL = timedelta(minutes=5)

SHELL, PYTHON, NODE = 5, 7, 9
WORKERS = {SHELL: "worker-shell", PYTHON: "worker-python", NODE: "worker-node"}
HOSTS = {SHELL: "sh-1", PYTHON: "py-3", NODE: "js-2"}
INSTANCE = "sidecar-1"
FIRST_EXECUTION = 4001
LAST_DELETED_LETTER = 18_200

# Minutes before the night's `now`.
LOST_MINUTES = 32
# After the last heartbeat. Those of the sidecar in `night_world`: what is on record agrees with what it sees itself.
LATE_AFTER, UNAVAILABLE_AFTER = timedelta(seconds=4), timedelta(seconds=6)
GAP_MINUTES = range(45, 48)
NODE_LOST, NODE_BACK = timedelta(hours=9), timedelta(hours=7, minutes=40)
WAITING = 24
"""Messages that wait in the queue of the unavailable worker."""

ENFORCEMENTS = "attune.enforcements.queue"
# By minute before now: the newest letters are a minute old, so that a slow start shows the same picture.
EXPIRED = dict(
    zip(
        range(27, 2, -1),
        (25, 22, 22, 19, 24, 23, 22, 20, 19, 19, 20, 23, 22, 18, 24, 19, 19, 18, 25, 26, 23, 20, 18, 15, 13),
        strict=True,
    )
)
OVERFLOWN = {20: 6, 19: 6, 18: 6}
WITHOUT_ID = {58: 1, 56: 1, 50: 1, 37: 2, 33: 2, 23: 1, 14: 1, 6: 1}
# Of the day before: a worker that crashed on the same message again and again, and a sender of something else.
CRASHED = {60 * 9 + offset: 3 for offset in range(0, 75, 15)}
UNRELATED = {60 * hour: 1 for hour in (4, 13, 17, 21)}
ACTIONS = ("core.echo", "etl.load", "etl.transform", "report.render", "core.http")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallen:
    """One message that died, with the execution that waited for it, if any did."""

    raw: RawMessage
    died_at: datetime
    execution_id: int | None = None
    worker_id: int | None = None
    action_ref: str | None = None
    scheduled_at: datetime | None = None
    is_over: bool = False
    """Its execution had come to an end by itself."""

    @property
    def letter(self) -> DeadLetter:
        return read_dead_letter(self.raw, body_limit_bytes=65536)


def last_heartbeat_at(now: datetime) -> datetime:
    """The last heartbeat of the unavailable worker."""
    return now - timedelta(minutes=LOST_MINUTES) + timedelta(seconds=4)


def the_night(now: datetime) -> list[Fallen]:
    """In the order of their deaths. Their executions are numbered from FIRST_EXECUTION on."""
    moments: list[tuple[datetime, int, str]] = []
    for kind, minutes in (
        ("expired", EXPIRED),
        ("maxlen", OVERFLOWN),
        ("rejected", WITHOUT_ID),
        ("delivery_limit", CRASHED),
        ("unrelated", UNRELATED),
    ):
        for minute, count in minutes.items():
            began = now.replace(second=0, microsecond=0) - timedelta(minutes=minute)
            moments += [(began + timedelta(seconds=2 + number * 2), number, kind) for number in range(count)]
    return [_fallen(place, *moment) for place, moment in enumerate(sorted(moments))]


def _fallen(place: int, died_at: datetime, number: int, kind: str) -> Fallen:
    match kind:
        case "expired":
            return dispatched(place, died_at, kind, PYTHON, ACTIONS[number % 5], is_over=place % 260 == 17)
        case "maxlen":
            return dispatched(place, died_at, kind, SHELL, "core.http", is_over=number % 2 == 1)
        case "delivery_limit":
            return dispatched(place, died_at, kind, NODE, "report.render")
        case "rejected":
            return _published(place, died_at, "ExecutionRequested", {"rule_ref": "ops.nightly"})
        case _:
            return _published(place, died_at, "EventCreated", {"event_id": place})


def dispatched(
    place: int,
    died_at: datetime,
    reason: str,
    worker_id: int,
    action_ref: str,
    *,
    is_over: bool = False,
    config: dict[str, Any] | None = None,
    headers: dict[str, object] | None = None,
) -> Fallen:
    execution_id, queue = FIRST_EXECUTION + place, f"worker.{worker_id}.executions"
    scheduled_at = died_at - (TTL if reason == "expired" else timedelta(seconds=3))
    payload = {
        "execution_id": execution_id,
        "worker_id": worker_id,
        "action_ref": action_ref,
        "config": config or {"table": "orders", "password": "hunter2", "source": "https://etl:s3cret@db-7/x"},
        "scheduled_attempt_updated_at": rfc3339(scheduled_at),
    }
    return Fallen(
        raw=_raw(
            place,
            _envelope(place, died_at, "ExecutionRequested", payload),
            queue=queue,
            reason=reason,
            died_at=died_at,
            exchange="attune.executions",
            key=f"execution.dispatch.worker.{worker_id}",
            headers=headers or {},
        ),
        died_at=died_at,
        execution_id=execution_id,
        worker_id=worker_id,
        action_ref=action_ref,
        scheduled_at=scheduled_at,
        is_over=is_over,
    )


def _published(place: int, died_at: datetime, message_type: str, payload: dict[str, Any]) -> Fallen:
    """Rejected by a consumer that could not read it."""
    return Fallen(
        raw=_raw(
            place,
            _envelope(place, died_at, message_type, payload),
            queue=ENFORCEMENTS,
            reason="rejected",
            died_at=died_at,
            exchange="attune.events",
            key="enforcement.created",
            headers={},
        ),
        died_at=died_at,
    )


def _envelope(place: int, died_at: datetime, message_type: str, payload: dict[str, Any]) -> bytes:
    message_id = str(uuid5(NIGHT, str(place)))
    return json.dumps(
        {
            "message_id": message_id,
            "correlation_id": message_id,
            "message_type": message_type,
            "version": "1.0",
            "timestamp": rfc3339(died_at),
            "headers": {"retry_count": 0, "source_service": "executor"},
            "payload": payload,
        }
    ).encode()


def _raw(
    place: int,
    body: bytes,
    *,
    queue: str,
    reason: str,
    died_at: datetime,
    exchange: str,
    key: str,
    headers: dict[str, object],
) -> RawMessage:
    message_id = str(uuid5(NIGHT, str(place)))
    death = {
        "queue": queue,
        "reason": reason,
        "time": died_at.replace(microsecond=0),
        "count": 1,
        "exchange": exchange,
        "routing-keys": [key],
    }
    first = {f"x-first-death-{what}": value for what, value in (("queue", queue), ("reason", reason))}
    return RawMessage(
        exchange="attune.dlx",
        routing_key=key,
        redelivered=False,
        message_id=message_id,
        correlation_id=message_id,
        headers={"x-death": [death], **first, "x-first-death-exchange": exchange, **headers},
        body=body,
    )


SCRIPT = "<script>window.injected=1</script>"
HOSTILE_WORKER = 11
HOSTILE_NAME = f'worker-"><img src=x onerror="window.injected=1">{SCRIPT}'


def hostile(now: datetime, place: int) -> Sequence[Fallen]:
    """Letters of a sender who would like to run a script in the operator's browser; numbered from `place` on."""

    def payloads() -> Iterator[Fallen]:
        for number, text in enumerate(
            (SCRIPT, "'\"><svg onload=window.injected=1>", "javascript:window.injected=1")
        ):
            yield dispatched(
                place + number,
                now - timedelta(minutes=1, seconds=10 + number),
                "expired",
                HOSTILE_WORKER,
                f"core.{text}",
                config={"note": text, text: text, "env_vars": {"A": text}},
                headers={f"x-{text}": text, "x-long": "w" * 400},
            )

    return list(payloads())
