"""An outage that goes on, on the chart: the record has its minutes only when they are over. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from dlq_handler.dashboard.chart import ChartFacts
from dlq_handler.diagnosis.diagnosis import Check, Diagnosis
from dlq_handler.diagnosis.view import BrokerFact, QueueFact, View
from dlq_handler.history.history import still_unseen

# They say since when no letter comes to us.
_TOLD_BY = (Check.BROKER, Check.REPLICAS)


def with_outage(
    facts: ChartFacts, view: View | None, diagnoses: Sequence[Diagnosis], *, known_at: datetime, now: datetime
) -> ChartFacts:
    """`known_at`: when the facts were read. While nobody of us takes letters, blind time goes on up to now."""
    if view is None or not _is_blind(view):
        return facts
    told = [one.since for one in diagnoses if one.check in _TOLD_BY and one.since is not None]
    since = min(told, default=view.at)
    return replace(facts, blind=still_unseen(facts.blind, since=since, known_at=known_at, now=now))


def _is_blind(view: View) -> bool:
    if isinstance(view.broker, BrokerFact) and view.broker.error:
        return True
    if not isinstance(view.intake, QueueFact):
        return False
    taken = view.intake.consumers
    if taken is None or taken.count == 0:
        return True
    # Who consumes is not always told, or not of all.
    is_told = taken.tags is not None and not taken.lists_fewer
    return is_told and not any(tag.startswith(view.own_prefix) for tag in taken.tags or ())
