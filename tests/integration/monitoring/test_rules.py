"""The alerts, by promtool itself: each fires and is silent in a test, says how much, and where to go on."""

import re

import pytest

from sandbox.server_programs.program import output_of
from tests.support.monitoring import MonitoringPrograms
from tests.support.ops_files import (
    ALERTMANAGER,
    DASHBOARD,
    GUIDE,
    OPS,
    RULE_FILES,
    RUNBOOK,
    TEST_FILES,
    Alert,
    alerts,
    alerts_in_tests,
    read,
)

ALERTS = alerts()
NAMES = {alert.name for alert in ALERTS}
each_alert = pytest.mark.parametrize("alert", ALERTS, ids=[alert.name for alert in ALERTS])


@pytest.fixture
async def programs() -> MonitoringPrograms:
    return await MonitoringPrograms.find()


async def test_prometheus_and_alertmanager_accept_their_files(programs: MonitoringPrograms) -> None:
    await output_of(str(programs.promtool), "check", "config", str(OPS / "prometheus" / "prometheus.yml"))
    await output_of(str(programs.promtool), "check", "rules", *map(str, RULE_FILES))
    await output_of(str(programs.amtool), "check-config", str(ALERTMANAGER))


async def test_the_rules_pass_their_own_tests(programs: MonitoringPrograms) -> None:
    await output_of(str(programs.promtool), "test", "rules", *map(str, TEST_FILES))


def test_every_alert_fires_in_one_test_and_is_silent_in_another() -> None:
    assert len(ALERTS) == len(NAMES)
    assert alerts_in_tests(firing=True) == NAMES
    assert alerts_in_tests(firing=False) == NAMES


@each_alert
def test_an_alert_says_how_bad_it_is_how_much_and_where_to_go_on(alert: Alert) -> None:
    assert alert.severity in {"page", "ticket", "info"}
    assert alert.annotations["summary"]
    # Of what is absent there is no value.
    assert "$value" in alert.annotations["description"] or alert.expr.startswith("absent(")
    assert alert.annotations["dashboard_url"].startswith("{{ $externalLabels.dlq_handler_url }}/")


@each_alert
def test_the_runbook_has_an_entry_for_the_alert(alert: Alert) -> None:
    page, _, anchor = alert.annotations["runbook_url"].partition("#")
    assert page == "{{ $externalLabels.dlq_handler_runbook_url }}"
    entries = re.split(r"(?m)^## ", RUNBOOK.read_text(encoding="utf-8"))[1:]
    by_anchor = {entry.partition("\n")[0].lower().replace(" ", "-"): entry for entry in entries}
    assert f"`{alert.name}`" in by_anchor[anchor]


def test_prometheus_has_the_labels_that_the_links_are_made_of() -> None:
    labels = read(OPS / "prometheus" / "prometheus.yml")["global"]["external_labels"]
    texts = [text for alert in ALERTS for text in alert.annotations.values()]
    used = {name for text in texts for name in re.findall(r"\$externalLabels\.(\w+)", text)}
    assert used == set(labels)


def test_alertmanager_knows_the_alerts_and_has_a_receiver_for_each_severity() -> None:
    config = read(ALERTMANAGER)
    receivers = {receiver["name"] for receiver in config["receivers"]}
    assert {
        config["route"]["receiver"],
        *(route["receiver"] for route in config["route"]["routes"]),
    } <= receivers
    for rule in config["inhibit_rules"]:
        assert rule["equal"] == ["dlq_handler_url"], "another installation's trouble silences nothing here"
        for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
            pattern = matcher.rpartition(" ")[2]
            for one in pattern.split("|"):
                assert [name for name in NAMES if re.fullmatch(one, name)], f"{one} names no alert"


def test_the_dashboard_keeps_its_address() -> None:
    dashboard = read(DASHBOARD)
    assert dashboard["uid"] == "dlq-handler"
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))


def test_the_guide_lists_every_alert_under_its_severity() -> None:
    rows = re.findall(r"(?m)^\| `(\w+)` \|.*\| (`.+`) \|$", GUIDE.read_text(encoding="utf-8"))
    listed = {severity: set(re.findall(r"`(\w+)`", names)) for severity, names in rows}
    by_severity: dict[str, set[str]] = {}
    for alert in ALERTS:
        by_severity.setdefault(alert.severity, set()).add(alert.name)
    assert listed == by_severity
