"""Which worker gets an execution: role, runtimes, status, cordon and heartbeat, then one after the other by name.

No load, no queue depth, no health: so a worker that died less than 90 s ago is still chosen. Of placement rules only
the runtimes count here: `action.runtime` and the keys of `action.required_worker_runtimes`, all of which must be among
the worker's `capabilities.runtimes`; an action that names none fits every worker. Selectors, taints and affinity
do not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sandbox.attune.database import Session
from sandbox.times import STOCK

HEARTBEAT_FRESH_SECONDS = STOCK.unavailable_after_seconds

_WANTED = """
SELECT array_agg(DISTINCT lower(wanted)) FILTER (WHERE wanted IS NOT NULL)
  FROM execution
  JOIN action ON action.id = execution.action
  LEFT JOIN runtime ON runtime.id = action.runtime
  CROSS JOIN LATERAL unnest(array(SELECT jsonb_object_keys(action.required_worker_runtimes)) || runtime.name) AS wanted
 WHERE execution.id = $1
"""

# A heartbeat from the future counts as stale, as in Attune.
_FITTING = """
SELECT id,
       status = 'active' AND NOT cordoned
       AND coalesce(last_heartbeat BETWEEN now() - make_interval(secs => $1) AND now(), false) AS is_available
  FROM worker
 WHERE worker_role = 'action' AND coalesce(capabilities -> 'runtimes', '[]') ?& $2::text[]
 ORDER BY name
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    wanted: Sequence[str]
    has_fitting_worker: bool
    """Whether a worker with the wanted runtimes is registered, in any state."""
    worker_id: int | None


class WorkerSelection:
    """Goes round the available workers; whose turn it is, only this process knows."""

    def __init__(self, heartbeat_fresh_seconds: float) -> None:
        self._heartbeat_fresh_seconds = heartbeat_fresh_seconds
        self._turn = 0

    async def choose(self, session: Session, execution_id: int) -> Choice:
        wanted = await session.fetchval(_WANTED, execution_id) or []
        fitting = await session.fetch(_FITTING, self._heartbeat_fresh_seconds, wanted)
        available = [row["id"] for row in fitting if row["is_available"]]
        if available:
            self._turn += 1
        return Choice(
            wanted=wanted,
            # Without wanted runtimes every worker fits, and one may register later.
            has_fitting_worker=bool(fitting) or not wanted,
            worker_id=available[self._turn % len(available)] if available else None,
        )
