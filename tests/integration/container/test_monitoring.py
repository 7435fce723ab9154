"""What the compose profile `monitoring` mounts: it names services that are there, and metrics that we have."""

import json
import re
from typing import Any

import yaml

from tests.support.compose_file import ROOT, services

OPS = ROOT / "ops"
METRICS = set(re.findall(r"(?m)^\| `(dlq_handler_\w+)`", (ROOT / "docs/reference/metrics.md").read_text()))
SERVICES = services({})


def read(name: str) -> Any:
    return yaml.safe_load((OPS / name).read_text())


def test_prometheus_looks_where_the_services_are() -> None:
    config = read("prometheus/prometheus.yml")
    jobs = [*config["scrape_configs"], *config["alerting"]["alertmanagers"]]
    targets = [target for job in jobs for static in job["static_configs"] for target in static["targets"]]
    assert {target.partition(":")[0] for target in targets} == {"dlq-handler", "rabbitmq", "alertmanager"}
    assert (
        read("grafana/provisioning/datasources/prometheus.yml")["datasources"][0]["url"]
        == "http://prometheus:9090"
    )
    assert "dlq-handler:9464" in targets


def test_rules_are_where_prometheus_reads_them() -> None:
    pattern = read("prometheus/prometheus.yml")["rule_files"]
    assert [path for one in pattern for path in (OPS / "prometheus").glob(one)]


def test_alerts_go_to_a_receiver_that_exists() -> None:
    config = read("alertmanager/alertmanager.yml")
    assert config["route"]["receiver"] in [receiver["name"] for receiver in config["receivers"]]


def test_dashboards_are_where_grafana_reads_them() -> None:
    folder = read("grafana/provisioning/dashboards/files.yml")["providers"][0]["options"]["path"]
    mounted = SERVICES["grafana"].mounts[folder]
    assert all(json.loads(path.read_text())["panels"] for path in mounted.glob("*.json"))
    assert [*mounted.glob("*.json")]


def test_rules_and_dashboards_use_metrics_that_we_have() -> None:
    texts = [path.read_text() for path in OPS.rglob("*") if path.suffix in {".yml", ".json"}]
    used = {name for text in texts for name in re.findall(r"dlq_handler_\w+", text)}
    assert used
    # A histogram is used by its parts.
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in used} <= METRICS
