"""What the compose profile `monitoring` mounts names services that are there."""

import json
from typing import Any

import yaml

from tests.support.compose_file import ROOT, services

OPS = ROOT / "ops"
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


def test_dashboards_are_where_grafana_reads_them() -> None:
    folder = read("grafana/provisioning/dashboards/files.yml")["providers"][0]["options"]["path"]
    mounted = SERVICES["grafana"].mounts[folder]
    assert all(json.loads(path.read_text())["panels"] for path in mounted.glob("*.json"))
    assert [*mounted.glob("*.json")]
