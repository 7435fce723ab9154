"""For each inhibition of the example: a cause fires before what follows from it can, and lasts longer.

Only what fires holds something back.
"""

import re
from collections.abc import Iterable
from itertools import product

import pytest

from sandbox.times import STOCK
from tests.support.ops_files import ALERTMANAGER, Alert, alerts, read

ALERTS = {alert.name: alert for alert in alerts()}

# Between two series of one fact lie a look of ours, a scrape and an evaluation: 5, 15 and 15 seconds.
MARGIN_SECONDS = 60

# Our series are away for some scrapes, then NaN until the first look.
RESTART_SECONDS = 120

# What a cause may take, beyond its `for`, until its expression holds.
CAUSE_SEEN_AFTER_SECONDS = {
    "DlqHandlerNoActiveWorkers": STOCK.unavailable_after_seconds,
    # A second heartbeat, which comes every 30 s, a look of the leader, and a look of the replica that is scraped.
    "DlqHandlerWorkersNotConsuming": 45,
}
# An age or a range in an expression is such a time.
TAKES_TIME = re.compile(r"_age_seconds|\[\d+\w")


def named_by(matchers: Iterable[str]) -> list[str]:
    """The alerts that all of these matchers of the file select."""
    patterns = [re.fullmatch(r"alertname =~? (\S+)", matcher) for matcher in matchers]
    assert all(patterns), f"{matchers}: only names show when they fire"
    return [name for name in ALERTS if all(one and re.fullmatch(one[1], name) for one in patterns)]


# `info` sends no notification, so it need not wait.
PAIRS = [
    (ALERTS[cause], ALERTS[consequence])
    for rule in read(ALERTMANAGER)["inhibit_rules"]
    for cause, consequence in product(named_by(rule["source_matchers"]), named_by(rule["target_matchers"]))
    if ALERTS[consequence].severity != "info"
]
each_pair = pytest.mark.parametrize(
    ("cause", "consequence"), PAIRS, ids=[f"{cause.name}-{consequence.name}" for cause, consequence in PAIRS]
)


@each_pair
def test_a_cause_fires_before_what_follows_from_it(cause: Alert, consequence: Alert) -> None:
    assert cause.name in CAUSE_SEEN_AFTER_SECONDS or not TAKES_TIME.search(cause.expr), (
        f"say in CAUSE_SEEN_AFTER_SECONDS how long {cause.name} takes until its expression holds"
    )
    at_the_latest = CAUSE_SEEN_AFTER_SECONDS.get(cause.name, 0) + cause.for_seconds
    # Not the age in its expression: what waits may have been nearly that old already.
    at_the_earliest = consequence.for_seconds
    assert at_the_latest + MARGIN_SECONDS <= at_the_earliest


@each_pair
def test_a_cause_lasts_longer_than_what_follows_from_it(cause: Alert, consequence: Alert) -> None:
    assert cause.keep_firing_seconds >= consequence.keep_firing_seconds + MARGIN_SECONDS


@each_pair
def test_no_alert_is_its_own_cause_or_holds_back_its_cause(cause: Alert, consequence: Alert) -> None:
    assert cause != consequence
    assert (consequence, cause) not in PAIRS, "each would suppress the other"


def test_every_inhibition_is_looked_at() -> None:
    assert len(PAIRS) >= len(read(ALERTMANAGER)["inhibit_rules"])
    assert {"DlqHandlerNoneReady", "DlqHandlerNoActiveWorkers"} <= {cause.name for cause, _ in PAIRS}


@pytest.mark.parametrize("alert", ALERTS.values(), ids=ALERTS)
def test_a_page_of_ours_lasts_through_a_restart_of_ours(alert: Alert) -> None:
    if alert.severity == "page" and "dlq_handler_" in alert.expr:
        assert alert.keep_firing_seconds >= RESTART_SECONDS
