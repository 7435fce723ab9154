"""The closing table: each promise, what the auditor should have seen, what it saw, and how to see it yourself. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sandbox.demo.observed import numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    promise: str
    expected: int
    seen: int
    look: str
    """A command, for `./run up`."""
    log: str
    """The part whose log to read when it was broken."""
    note: str = ""

    @property
    def held(self) -> bool:
        return self.expected == self.seen


def promises(audit: Mapping[str, Any]) -> list[Promise]:
    ends, terminal, dispatched = audit["ends"], audit["terminal"], audit["dispatched"]
    return [
        Promise(
            promise="stock Attune: letters that reach its dead-letter queue",
            expected=0,
            seen=audit["stock_letters"],
            look="./run rabbitmq list_bindings source_name destination_name routing_key",
            log="broker",
        ),
        Promise(
            promise="every execution that was dispatched came to an end",
            expected=dispatched,
            seen=dispatched - len(audit["open"]),
            look='./run psql -c "SELECT status, count(*) FROM execution GROUP BY 1"',
            log="sidecar",
            note=_which("still open", audit["open"]),
        ),
        Promise(
            promise="the completion event of each end was published, exactly once",
            expected=ends,
            seen=ends - len(audit["silent"]) - len(audit["doubled"]),
            look="./run dlq-handler executions explain ID",
            log="sidecar",
            note=", ".join(
                filter(
                    None,
                    (
                        _which("not published", audit["silent"]),
                        _which("published more than once", audit["doubled"]),
                        f"{audit['repeats']} repeats after a kill, with the same id"
                        if audit["repeats"]
                        else "",
                    ),
                )
            ),
        ),
        Promise(
            promise="no execution that was over was changed",
            expected=terminal,
            seen=terminal - len(audit["changed"]),
            look='./run psql -c "SELECT id, updated, md5(result::text) FROM execution"',
            log="sidecar",
            note=_which("changed", audit["changed"]),
        ),
        Promise(
            promise="each execution dispatched to a retired worker came to an end",
            expected=audit["retired"],
            seen=audit["retired"] - len(audit["retired_open"]),
            look="./run dlq-handler flows list",
            log="sidecar",
            note=_which("still open", audit["retired_open"]),
        ),
        Promise(
            promise="queues of a retired worker that were not deleted",
            expected=0,
            seen=len(audit["undeleted"]),
            look="./run dlq-handler queues list",
            log="sidecar",
            note=", ".join(audit["undeleted"]),
        ),
        Promise(
            promise="no execution is left in the line of core.slow",
            expected=0,
            seen=audit["in_line"],
            look='./run psql -c "SELECT * FROM execution_admission_entry"',
            log="executor",
        ),
        Promise(
            promise="no message is left in any queue",
            expected=0,
            seen=audit["messages_waiting"],
            look="./run rabbitmq list_queues name messages",
            log="sidecar",
        ),
    ]


def table(kept: Sequence[Promise], width: int) -> Iterator[str]:
    """Two lines a promise, for eighty columns: a command does not fit beside it."""
    column = min(max(len(promise.promise) for promise in kept), width - 22)
    yield f"  {'promise':<{column}}  expected    seen"
    for promise in kept:
        mark = "✓" if promise.held else "✗"
        yield f"{mark} {promise.promise:<{column}}  {promise.expected:>8}  {promise.seen:>6}"
        if promise.note:
            yield f"    {promise.note}"
        yield f"    {promise.look}"


def _which(what: str, ids: Sequence[int]) -> str:
    return f"{what}: {numbers(ids)}" if ids else ""
