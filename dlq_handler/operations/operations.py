"""What an operator may do, from wherever it is asked: release the brake, decide letters again, read a raw body.

Promises: each act and its line in the audit are one transaction, so that neither is without the other; an act that was
asked for on the strength of a state that has changed since raises `Changed` and does nothing. Never: decides who may.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from dlq_handler.database.engine import Database
from dlq_handler.database.transaction import Transaction
from dlq_handler.dead_letters import records_sql, reprocess_sql
from dlq_handler.dead_letters.decision import REPROCESSABLE
from dlq_handler.dead_letters.filter import CappedCount
from dlq_handler.dead_letters.reprocess import Reprocessed
from dlq_handler.dead_letters.state_version import LetterState, brake_version, group_version, letters_version
from dlq_handler.errors import Unavailable
from dlq_handler.operations import audit_sql, operation
from dlq_handler.operations.operation import Client
from dlq_handler.safety import brake_sql
from dlq_handler.safety.brake import BrakeView
from dlq_handler.text import in_units

LONGEST_COMMENT = 500
_NONE = CappedCount(count=0, is_capped=False)

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who does it, for the audit: a token's name, or OS user@host."""

    username: str
    client: Client


class Changed(Exception):
    """The state is not the one that the operator saw. `version` is the one it has now."""

    def __init__(self, action: str, *, version: str) -> None:
        super().__init__(f"{action} changed since you looked; look again, then decide")
        self.action, self.version = action, version


class Impossible(Exception):
    """It cannot be done at all as things are, and says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    operation_id: int
    view: BrakeView


@dataclass(frozen=True, slots=True, kw_only=True)
class PutUp:
    """Letters that are due to be reprocessed, and what became at once of the first of them."""

    operation_id: int | None
    """None: there was none to put up, so nothing was done."""
    letter_ids: Sequence[int]
    decided: Sequence[Reprocessed] = ()
    waiting: Mapping[int, str] = field(default_factory=dict)
    """Letters that were not decided at once, and why; a sidecar takes them up when it can."""
    passed_over: Mapping[int, str] = field(default_factory=dict)
    """Letters that were asked for and cannot be reprocessed, and why."""
    left: CappedCount = _NONE
    """Letters of the group that this act did not reach: there were more than it puts up."""


class Reprocessor(Protocol):
    async def reprocess(self, record_id: int) -> Reprocessed | None:
        """None: it is not to be had just now, or there is nothing to do."""


class Operating:
    def __init__(self, database: Database, reprocessor: Reprocessor | None) -> None:
        """Without a reprocessor (shadow mode) no letter is reprocessed."""
        self._database, self._reprocessor = database, reprocessor

    async def release_brake(
        self, actor: Actor, *, comment: str, for_seconds: float, version: str | None = None
    ) -> Released:
        """`version` None, here and below: whatever the state is."""
        async with self._database.transaction() as tx:
            seen = await brake_sql.look(tx)
            _expect(version, brake_version(seen.state), "the brake")
            is_released = await brake_sql.release(
                tx, by=actor.username, for_seconds=for_seconds, seen=seen.state
            )
            view = await brake_sql.look(tx)
            if not is_released:
                # Somebody else did, between our two statements.
                raise Changed("the brake", version=brake_version(view.state))
            result = f"no limit for {in_units(for_seconds)}" if for_seconds else "the limit holds again"
            noted = await _record(tx, actor, operation.BRAKE_RELEASE, comment=comment, result=result)
        return Released(operation_id=noted.told(), view=view)

    async def reprocess(
        self,
        actor: Actor,
        *,
        letter_ids: Sequence[int] | None = None,
        group: str | None = None,
        comment: str,
        version: str | None = None,
        at_once: int | None = None,
    ) -> PutUp:
        """Put the named letters, or those of a group, up to be reprocessed, and decide the first `at_once` of them here
        (None: all). Of a very large group this is a part; the same act again comes to the next.
        """
        if self._reprocessor is None:
            raise Impossible("in shadow mode nothing is ended, so nothing is reprocessed")
        passed_over: dict[int, str] = {}
        left = _NONE
        async with self._database.transaction() as tx:
            if group is not None:
                reached = await reprocess_sql.lock_group(tx, group)
                _expect(version, group_version(await reprocess_sql.digest_of(tx, reached)), "the group")
                due, target = await reprocess_sql.put_up(tx, reached), f"group {group}"
                left = await reprocess_sql.left_in_group(tx, group)
            else:
                found = await reprocess_sql.lock_letters(tx, letter_ids or ())
                if found:
                    _expect(version, letters_version(found), "the letter" if len(found) == 1 else "a letter")
                passed_over = _passed_over(letter_ids or (), found)
                due, target = await reprocess_sql.put_up(tx, letter_ids or ()), _named(letter_ids or ())
            if not due:
                return PutUp(operation_id=None, letter_ids=(), passed_over=passed_over)
            noted = await _record(
                tx,
                actor,
                operation.LETTERS_REPROCESS,
                target=target,
                comment=comment,
                result=_put_up(len(due), left),
            )
        number = noted.told()
        decided, waiting = await self._decide(self._reprocessor, due if at_once is None else due[:at_once])
        waiting |= {} if at_once is None else dict.fromkeys(due[at_once:], "it is in line")
        return PutUp(
            operation_id=number,
            letter_ids=due,
            decided=decided,
            waiting=waiting,
            passed_over=passed_over,
            left=left,
        )

    async def read_body(self, actor: Actor, letter_id: int) -> bytes | None:
        """As it came, unmasked. None: no such letter on record."""
        async with self._database.transaction() as tx:
            body = await reprocess_sql.raw_body(tx, letter_id)
            if body is None:
                return None
            target, result = f"letter {letter_id}", f"{len(body)} bytes"
            noted = await _record(tx, actor, operation.LETTER_BODY_READ, target=target, result=result)
        noted.told()
        return body

    async def _decide(
        self, reprocessor: Reprocessor, letter_ids: Sequence[int]
    ) -> tuple[list[Reprocessed], dict[int, str]]:
        decided: list[Reprocessed] = []
        waiting: dict[int, str] = {}
        for place, letter_id in enumerate(letter_ids):
            try:
                one = await reprocessor.reprocess(letter_id)
            except Unavailable as error:
                # Gate, brake or a server: the next one would hear the same, and all of them are due.
                return decided, waiting | dict.fromkeys(letter_ids[place:], str(error))
            if one is None:
                waiting[letter_id] = await self._why_waiting(letter_id)
            else:
                decided.append(one)
        return decided, waiting

    async def _why_waiting(self, letter_id: int) -> str:
        record = await records_sql.show(self._database, letter_id)
        if record is not None and record.outcome not in REPROCESSABLE:
            return f"another sidecar was quicker: {record.outcome.value}"
        return "its record or its execution is locked by somebody just now, or the brake has no room for it"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Noted:
    """A line of the audit that stands once its transaction is through."""

    number: int
    actor: Actor
    action: str
    target: str | None

    def told(self) -> int:
        """After the commit: a log must not tell of what was rolled back."""
        log.info(
            "operation.recorded",
            number=self.number,
            username=self.actor.username,
            client=self.actor.client.value,
            action=self.action,
            target=self.target,
        )
        return self.number


async def _record(
    tx: Transaction,
    actor: Actor,
    action: str,
    *,
    target: str | None = None,
    comment: str | None = None,
    result: str,
) -> _Noted:
    number = await audit_sql.record(
        tx,
        username=actor.username,
        client=actor.client,
        action=action,
        target=target,
        comment=comment,
        result=result,
    )
    return _Noted(number=number, actor=actor, action=action, target=target)


def _expect(version: str | None, found: str, action: str) -> None:
    if version is not None and version != found:
        raise Changed(action, version=found)


def _passed_over(asked: Sequence[int], found: Sequence[LetterState]) -> dict[int, str]:
    by_id = {record.id: record for record in found}
    return {
        one: explanation for one in asked if (explanation := _why_passed_over(by_id.get(one))) is not None
    }


def _why_passed_over(record: LetterState | None) -> str | None:
    if record is None:
        return "there is no such letter on record"
    if record.is_shadow:
        return "it is a record of shadow mode; the letter itself went another way"
    if record.outcome not in REPROCESSABLE:
        return f"{record.outcome.value} is settled for good"
    return None


def _named(letter_ids: Sequence[int]) -> str:
    shown = ", ".join(str(one) for one in letter_ids[:5])
    more = f" and {len(letter_ids) - 5} more" if len(letter_ids) > 5 else ""
    return f"letter {shown}" if len(letter_ids) == 1 else f"letters {shown}{more}"


def _put_up(count: int, left: CappedCount) -> str:
    done = f"{count} {'letter' if count == 1 else 'letters'} put up to be reprocessed"
    return f"{done}, {left} left" if left.count else done
