"""Gaps on the chart: times in which no replica consumed, and an outage in progress. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from dlq_handler.dashboard.chart.draw import ChartFacts
from dlq_handler.diagnosis.diagnosis import Check, Diagnosis
from dlq_handler.diagnosis.view import BrokerFact, QueueFact, View
from dlq_handler.history.history import Segment, Timeline, with_ongoing_gap
from dlq_handler.workers.availability import Availability

# These checks date the moment since when no dead letter is consumed.
_DATING = (Check.BROKER, Check.REPLICAS)


def with_outage(
    facts: ChartFacts, view: View | None, diagnoses: Sequence[Diagnosis], *, known_at: datetime, now: datetime
) -> ChartFacts:
    """The facts with an outage in progress. `known_at`: when they were read; earlier than now while the database is
    unavailable, and then the state of workers is unknown since.
    """
    if known_at < now:
        facts = replace(facts, timelines=[_unknown_since(one, known_at, now) for one in facts.timelines])
    if view is None or not _is_outage(view):
        return facts
    dates = [one.since for one in diagnoses if one.check in _DATING and one.since is not None]
    gaps = with_ongoing_gap(facts.gaps, since=min(dates, default=view.at), known_at=known_at, now=now)
    return replace(facts, gaps=gaps, is_outage=True)


def _unknown_since(timeline: Timeline, since: datetime, now: datetime) -> Timeline:
    gap = Segment(since=since, until=now, availability=Availability.UNKNOWN)
    return replace(timeline, segments=(*timeline.segments, gap))


def _is_outage(view: View) -> bool:
    if isinstance(view.broker, BrokerFact) and view.broker.error:
        return True
    if not isinstance(view.intake, QueueFact):
        return False
    taken = view.intake.consumers
    if taken is None or taken.count == 0:
        return True
    # The broker does not always list the consumers, or not all of them.
    is_listed = taken.tags is not None and not taken.lists_fewer
    return is_listed and not any(tag.startswith(view.own_prefix) for tag in taken.tags or ())
