"""One dispatch at a worker, from what it says to its announced end.

Stock Attune writes both changes over whatever is there (D8). Cured, each is a compare-and-set: `running` only over the
attempt that the message names, the end only over `running`.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sandbox.attune import messages
from sandbox.attune.amqp import PublishFailed
from sandbox.attune.database import Row, Session
from sandbox.attune.defects import Cured, Defect
from sandbox.attune.log_line import PrintLine

RunAction = Callable[[dict[str, Any]], Awaitable[object]]
"""Takes the dispatch's payload with the row's own config; gives the result, or raises."""

_LOOK = "SELECT status, action, action_ref, config FROM execution WHERE id = $1"

_BEGIN_OVER_ANYTHING = (
    "UPDATE execution SET status = 'running', started_at = now() WHERE id = $1 RETURNING id"
)

_BEGIN_SCHEDULED = """
UPDATE execution SET status = 'running', started_at = now()
 WHERE id = $1 AND status = 'scheduled' AND ($2::timestamptz IS NULL OR updated = $2)
RETURNING id
"""

_END_OVER_ANYTHING = "UPDATE execution SET status = $2, result = $3 WHERE id = $1 RETURNING id"

_END_RUNNING = """
UPDATE execution SET status = $2, result = $3 WHERE id = $1 AND status = 'running' RETURNING id
"""


class ActionFailed(Exception):
    """An action that ran and did not succeed. Carries the result that its execution gets."""

    def __init__(self, result: dict[str, Any]) -> None:
        super().__init__(str(result.get("error")))
        self.result = result


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A dispatch as a worker reads it."""

    execution_id: int
    action_ref: str
    payload: dict[str, Any]

    @property
    def scheduled_at(self) -> datetime | None:
        """Which attempt it is: the row's `updated` after scheduling. None where the message does not say."""
        return messages.read_stamp(self.payload.get("scheduled_attempt_updated_at"))


def read_dispatch(body: bytes) -> Taken | None:
    """None for what is no dispatch."""
    try:
        payload = messages.read_envelope(body).payload
        return Taken(
            execution_id=int(payload["execution_id"]), action_ref=str(payload["action_ref"]), payload=payload
        )
    except (ValueError, KeyError, TypeError):
        return None


class ActionRunner:
    """Takes a dispatch to its announced end."""

    def __init__(
        self,
        *,
        session: Callable[[], Session],
        publish: messages.Publish,
        run_action: RunAction,
        cured: Cured,
        print_line: PrintLine,
    ) -> None:
        self._session, self._publish, self._run_action = session, publish, run_action
        self._cured, self._print_line = cured, print_line

    async def run(self, taken: Taken) -> bool:
        """True: it was run, and ended by us. An action that fails is an end like any other."""
        execution_id, action_ref = taken.execution_id, taken.action_ref
        row = await self._begin(taken)
        if row is None:
            self._print_line(f"execution {execution_id} ({action_ref}) is not to be run any more")
            return False
        self._print_line(f"execution {execution_id} ({action_ref}) runs")
        await self._announce_status(taken, "scheduled", "running")
        result: object
        try:
            result, status = await self._run_action({**taken.payload, "config": row["config"]}), "completed"
        except ActionFailed as error:
            result, status = error.result, "failed"
        except Exception as error:
            result, status = {"error": str(error)}, "failed"
        if not await self._end(execution_id, status, result):
            self._print_line(f"execution {execution_id} was ended by another one: its result is dropped")
            return False
        self._print_line(f"execution {execution_id} ({action_ref}) {status}")
        # The row has it already: as stock Attune, which reads the row for both.
        await self._announce_status(taken, status, status)
        await self._publish_or_say(
            messages.execution_completed(
                execution_id=execution_id,
                action_id=row["action"],
                action_ref=action_ref,
                status=status,
                result=result,
            )
        )
        return True

    async def _begin(self, taken: Taken) -> Row | None:
        """The row as it was found, now running. None: there is nothing to run."""
        row = await self._session().fetchrow(_LOOK, taken.execution_id)
        if row is None or row["status"] in {"cancelled", "canceling"}:
            return None
        if Defect.D8 in self._cured:
            begun = await self._session().fetchval(_BEGIN_SCHEDULED, taken.execution_id, taken.scheduled_at)
        else:
            begun = await self._session().fetchval(_BEGIN_OVER_ANYTHING, taken.execution_id)
        return row if begun else None

    async def _end(self, execution_id: int, status: str, result: object) -> bool:
        """False: it is running no more, and stays as it is."""
        statement = _END_RUNNING if Defect.D8 in self._cured else _END_OVER_ANYTHING
        return bool(await self._session().fetchval(statement, execution_id, status, result))

    async def _publish_or_say(self, message: messages.StockMessage) -> None:
        """The action and its row come first: a broker that is lost stops neither."""
        try:
            await self._publish(message)
        except PublishFailed as error:
            self._print_line(f"not published: {error}")

    async def _announce_status(self, taken: Taken, before: str, after: str) -> None:
        await self._publish_or_say(
            messages.status_changed(
                execution_id=taken.execution_id,
                action_ref=taken.action_ref,
                previous_status=before,
                new_status=after,
            )
        )
