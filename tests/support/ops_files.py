"""What is in ops/: rules, their promtool tests, Alertmanager's example, the dashboard; and the metrics they name."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
OPS = ROOT / "ops"
RULE_FILES = sorted((OPS / "prometheus" / "rules").glob("*.yml"))
TEST_FILES = sorted((OPS / "prometheus" / "tests").glob("*.yml"))
ALERTMANAGER = OPS / "alertmanager" / "alertmanager.yml"
DASHBOARD = OPS / "grafana" / "dashboards" / "dlq-handler.json"
RUNBOOK = ROOT / "docs" / "runbook.md"
GUIDE = ROOT / "docs" / "how-to" / "monitoring.md"

# Ours, the broker's, and what every Python process and every scrape has.
METRIC = re.compile(r"\b(?:dlq_handler|rabbitmq|process)_\w+|\bup\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    name: str
    expr: str
    severity: str
    annotations: dict[str, str]
    for_seconds: int
    keep_firing_seconds: int


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def alerts() -> list[Alert]:
    rules = [rule for path in RULE_FILES for group in read(path)["groups"] for rule in group["rules"]]
    return [
        Alert(
            name=rule["alert"],
            expr=rule["expr"],
            severity=rule["labels"]["severity"],
            annotations=rule["annotations"],
            for_seconds=seconds_of(rule.get("for", "0s")),
            keep_firing_seconds=seconds_of(rule.get("keep_firing_for", "0s")),
        )
        for rule in rules
    ]


def seconds_of(duration: str) -> int:
    """Of a duration with one unit, as all of ours."""
    return int(duration[:-1]) * {"s": 1, "m": 60, "h": 3600}[duration[-1]]


def alerts_in_tests(*, firing: bool) -> set[str]:
    """Alerts that some promtool test expects to fire, or to stay silent."""
    return {
        case["alertname"]
        for path in TEST_FILES
        for test in read(path)["tests"]
        for case in test.get("alert_rule_test", ())
        if bool(case["exp_alerts"]) is firing
    }


def panel_queries() -> Iterator[str]:
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]


def metrics_in(*queries: str) -> set[str]:
    return {name for query in queries for name in METRIC.findall(query)}
