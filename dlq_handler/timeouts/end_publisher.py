"""Publish the completion events of ends that another component wrote and did not publish.

Promises: each event is written once, with the record of the decision, in one transaction of the leader. The outbox
relay publishes it. In shadow mode only the record is written.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog

from dlq_handler.database.engine import Database
from dlq_handler.database.leadership import Leadership
from dlq_handler.endings.outbox_sql import add_to_outbox
from dlq_handler.host.ends import UnheardEnd
from dlq_handler.host.messages import Destination
from dlq_handler.metrics import Metrics
from dlq_handler.timeouts import decisions_sql
from dlq_handler.timeouts.reconcile import Finding, announced_record, announcement

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class EndPublisherPolicy:
    replica: str
    destination: Destination
    is_shadow: bool = False


class EndPublisher:
    def __init__(
        self,
        database: Database,
        leadership: Leadership,
        policy: EndPublisherPolicy,
        *,
        metrics: Metrics,
    ) -> None:
        self._database, self._leadership, self._policy = database, leadership, policy
        self._metrics = metrics

    async def publish(self, ends: Sequence[UnheardEnd], finding: Finding, now: datetime) -> int:
        """Returns how many of them were not published before."""
        if not ends:
            return 0
        policy = self._policy
        records = [
            announced_record(end, finding, now=now, replica=policy.replica, is_shadow=policy.is_shadow)
            for end in ends
        ]
        async with self._database.transaction() as tx:
            await self._leadership.fence(tx)
            written = await decisions_sql.record(tx, records)
            fresh = [end for end in ends if end.execution.id in written]
            if not policy.is_shadow:
                # Without a lease, as it is not urgent: the relay finds it at its next poll.
                events = [announcement(end, destination=policy.destination, now=now) for end in fresh]
                await add_to_outbox(tx, events)
        if fresh:
            self._metrics.reconciled.labels(finding).inc(len(fresh))
            log.warning(
                "execution.completion_published",
                finding=finding.value,
                execution_ids=[end.execution.id for end in fresh],
                is_shadow=policy.is_shadow,
            )
        return len(fresh)
