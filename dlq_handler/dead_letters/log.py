"""Tell of letters that are on record now: to the metrics one by one, to the log one by one while they are few."""

from collections.abc import Collection
from datetime import datetime

import structlog

from dlq_handler.dead_letters.record import Entry
from dlq_handler.metrics import Metrics

log = structlog.get_logger()

TOLD_ONE_BY_ONE = 20


def tell_of_letters(entries: Collection[Entry], now: datetime, metrics: Metrics) -> None:
    """`now` is the database's clock at the time of the decision."""
    for entry in entries:
        died_at = entry.letter.died_at
        latency = (now - died_at).total_seconds() if died_at else None
        metrics.count_dead_letter(entry.letter.reason, entry.outcome, latency)
    if len(entries) > TOLD_ONE_BY_ONE:
        # A flood in one line: a line for each letter drowns whoever reads them and takes a fifth of our time. The
        # ids are there to be searched for, and the records say the rest.
        executions: dict[str, list[int | None]] = {}
        for entry in entries:
            executions.setdefault(entry.outcome.value, []).append(entry.letter.execution_id)
        log.info("batch.decided", letters=len(entries), executions=executions)
        return
    for entry in entries:
        letter = entry.letter
        log.info(
            "dead_letter.decided",
            outcome=entry.outcome.value,
            reason=letter.reason,
            execution_id=letter.execution_id,
            message_id=letter.message_id,
            queue=letter.queue,
            explanation=entry.explanation,
        )
