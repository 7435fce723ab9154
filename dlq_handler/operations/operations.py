"""What an operator may do, by command, API or dashboard: release the brake, reprocess dead letters, read a raw body.

Promises: each operation and its audit record are one transaction, so that neither exists without the other. An
operation whose expected state has changed since raises `Changed` and does nothing. Never: decides who may operate.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from dlq_handler.database.engine import Database
from dlq_handler.dead_letters import records_sql, reprocess_sql
from dlq_handler.dead_letters.decision import REPROCESSABLE
from dlq_handler.dead_letters.listing import (
    CappedCount,
    LetterState,
    brake_version,
    group_version,
    letters_version,
)
from dlq_handler.dead_letters.reprocess import Reprocessed
from dlq_handler.errors import Unavailable
from dlq_handler.operations import audit_sql
from dlq_handler.operations.operation import Action, Actor, target_of
from dlq_handler.safety import brake_sql
from dlq_handler.safety.brake import BrakeView
from dlq_handler.text import in_units

LONGEST_COMMENT = 500
_NONE = CappedCount(count=0, is_capped=False)

log = structlog.get_logger()


class Changed(Exception):
    """The state is not the one that the operator saw. `version` is the present one."""

    def __init__(self, subject: str, *, version: str) -> None:
        super().__init__(f"{subject} has changed since you read its state; read it again, then decide")
        self.subject, self.version = subject, version


class Impossible(Exception):
    """The operation cannot be done in the present state; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    operation_id: int
    view: BrakeView


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedReprocessing:
    """Dead letters that were queued for reprocessing, and the result of those that were decided at once."""

    operation_id: int | None
    """None: none could be queued, so nothing was done."""
    letter_ids: Sequence[int]
    decided: Sequence[Reprocessed] = ()
    waiting: Mapping[int, str] = field(default_factory=dict)
    """Dead letters that were not decided at once, and why; a replica decides them later."""
    refused: Mapping[int, str] = field(default_factory=dict)
    """Dead letters that were named and cannot be reprocessed, and why."""
    left: CappedCount = _NONE
    """Dead letters of the group beyond the number that one operation queues."""


class LetterReprocessor(Protocol):
    async def reprocess(self, record_id: int) -> Reprocessed | None:
        """None: its rows are locked, the brake has no room for it, or it is resolved."""


class Operations:
    def __init__(self, database: Database, reprocessor: LetterReprocessor | None) -> None:
        """Without a reprocessor (shadow mode) no dead letter is reprocessed."""
        self._database, self._reprocessor = database, reprocessor

    async def release_brake(
        self, actor: Actor, *, comment: str, for_seconds: float, version: str | None = None
    ) -> Released:
        """`version` None, here and below: any state."""
        async with self._database.transaction() as tx:
            seen = await brake_sql.read_brake(tx)
            _expect(version, brake_version(seen.state), "the brake")
            is_released = await brake_sql.release(
                tx, by=actor.username, for_seconds=for_seconds, seen=seen.state
            )
            view = await brake_sql.read_brake(tx)
            if not is_released:
                # Another operator released it between the two statements.
                raise Changed("the brake", version=brake_version(view.state))
            result = f"no limit for {in_units(for_seconds)}" if for_seconds else "the limit holds again"
            operation_id = await audit_sql.record(
                tx, actor, Action.BRAKE_RELEASE, comment=comment, result=result
            )
        _log(operation_id, actor, Action.BRAKE_RELEASE)
        return Released(operation_id=operation_id, view=view)

    async def reprocess(
        self,
        actor: Actor,
        *,
        letter_ids: Sequence[int] | None = None,
        group: str | None = None,
        comment: str,
        version: str | None = None,
        at_once: int | None = None,
    ) -> QueuedReprocessing:
        """Queue the named dead letters, or those of a group, and decide the first `at_once` of them here (None: all).

        Of a very large group this is a part; the same operation again queues the next part.
        """
        if self._reprocessor is None:
            raise Impossible("in shadow mode no execution is ended, so no dead letter is reprocessed")
        named = letter_ids or ()
        refused: dict[int, str] = {}
        left = _NONE
        async with self._database.transaction() as tx:
            if group is not None:
                reached = await reprocess_sql.lock_group(tx, group)
                _expect(version, group_version(await reprocess_sql.digest_of(tx, reached)), "the group")
                queued = await reprocess_sql.queue_reprocessing(tx, reached)
                left = await reprocess_sql.left_in_group(tx, group)
            else:
                found = await reprocess_sql.lock_letters(tx, named)
                if found:
                    subject = "the dead letter" if len(found) == 1 else "one of the dead letters"
                    _expect(version, letters_version(found), subject)
                refused = _refused(named, found)
                queued = await reprocess_sql.queue_reprocessing(tx, named)
            if not queued:
                return QueuedReprocessing(operation_id=None, letter_ids=(), refused=refused)
            result = f"{len(queued)} queued for reprocessing" + (f", {left} left" if left.count else "")
            operation_id = await audit_sql.record(
                tx,
                actor,
                Action.LETTERS_REPROCESS,
                letter_ids=named,
                group_id=group,
                comment=comment,
                result=result,
            )
        _log(operation_id, actor, Action.LETTERS_REPROCESS, target_of(named, group))
        decided, waiting = await self._decide(
            self._reprocessor, queued if at_once is None else queued[:at_once]
        )
        waiting |= {} if at_once is None else dict.fromkeys(queued[at_once:], "queued for reprocessing")
        return QueuedReprocessing(
            operation_id=operation_id,
            letter_ids=queued,
            decided=decided,
            waiting=waiting,
            refused=refused,
            left=left,
        )

    async def read_body(self, actor: Actor, letter_id: int) -> bytes | None:
        """As it was received, unmasked. None: no such dead letter on record."""
        async with self._database.transaction() as tx:
            body = await reprocess_sql.raw_body(tx, letter_id)
            if body is None:
                return None
            operation_id = await audit_sql.record(
                tx, actor, Action.LETTER_BODY_READ, letter_ids=[letter_id], result=f"{len(body)} bytes"
            )
        _log(operation_id, actor, Action.LETTER_BODY_READ, target_of([letter_id], None))
        return body

    async def _decide(
        self, reprocessor: LetterReprocessor, letter_ids: Sequence[int]
    ) -> tuple[list[Reprocessed], dict[int, str]]:
        decided: list[Reprocessed] = []
        waiting: dict[int, str] = {}
        for place, letter_id in enumerate(letter_ids):
            try:
                one = await reprocessor.reprocess(letter_id)
            except Unavailable as error:
                # Safety gate, brake or a server: the next one would meet the same error, and all of them are queued.
                return decided, waiting | dict.fromkeys(letter_ids[place:], str(error))
            if one is None:
                waiting[letter_id] = await self._explain_waiting(letter_id)
            else:
                decided.append(one)
        return decided, waiting

    async def _explain_waiting(self, letter_id: int) -> str:
        record = await records_sql.show(self._database, letter_id)
        if record is not None and record.outcome not in REPROCESSABLE:
            return f"another replica has decided it: {record.outcome.value}"
        return "its record or its execution is locked, or the brake has no room for it"


def _log(operation_id: int, actor: Actor, action: Action, target: str | None = None) -> None:
    """After the commit: an operation that was rolled back must not be in the log."""
    log.info(
        "operation.recorded",
        number=operation_id,
        username=actor.username,
        client=actor.client.value,
        action=action.value,
        target=target,
    )


def _expect(version: str | None, found: str, subject: str) -> None:
    if version is not None and version != found:
        raise Changed(subject, version=found)


def _refused(named: Sequence[int], found: Sequence[LetterState]) -> dict[int, str]:
    by_id = {record.id: record for record in found}
    return {one: reason for one in named if (reason := _reason_to_refuse(by_id.get(one))) is not None}


def _reason_to_refuse(record: LetterState | None) -> str | None:
    if record is None:
        return "no such dead letter on record"
    if record.is_shadow:
        return "it is a copy that shadow mode recorded"
    if record.outcome not in REPROCESSABLE:
        return f"its outcome is final: {record.outcome.value}"
    return None
