"""docker-compose.yml by its specification, and by what we promise of it; test_compose_services.py runs it."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dlq_handler.settings import load
from sandbox.servers.docker import POSTGRESQL_IMAGE, RABBITMQ_IMAGE
from sandbox.times import SCALED, sidecar_environment
from tests.support.compose_file import COMPOSE_FILE, ROOT, Service, of_dockerfile, services

STOCK = services({})
OURS = {name: service for name, service in STOCK.items() if service.is_ours}
DOCKER_CONFIG = ROOT / "config.docker.yaml"
WITH_DASHBOARD = ROOT / "deploy" / "compose" / "ui.yml"


def test_the_files_follow_the_compose_specification() -> None:
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    files = [str(COMPOSE_FILE), str(WITH_DASHBOARD)]
    checked = subprocess.run([*check, *files], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_second_file_opens_the_dashboard_with_a_token(tmp_path: Path) -> None:
    added = yaml.safe_load(WITH_DASHBOARD.read_text())
    section, (secret,) = added["services"]["dlq-handler"], added["secrets"]
    assert section["secrets"] == [secret]
    assert [port.split(":")[0] for port in section["ports"]] == ["127.0.0.1"]
    (tmp_path / secret).write_text("0123456789abcdef")
    environment = {
        name: value.replace("/run/secrets", str(tmp_path)) for name, value in section["environment"].items()
    }
    ui = load(DOCKER_CONFIG, environment).settings.dlq_handler.ui
    assert (ui.host, [token.role for token in ui.tokens]) == ("0.0.0.0", ["operate"])
    assert section["ports"][0].endswith(f":{ui.port}")
    assert load(DOCKER_CONFIG, {}).settings.dlq_handler.ui.is_local, (
        "without it only the container itself has access"
    )


def test_every_part_is_there() -> None:
    servers, monitoring = {"postgres", "rabbitmq"}, {"prometheus", "alertmanager", "grafana"}
    workers = {"worker-shell", "worker-python", "worker-node"}
    assert set(OURS) == {"migrate", "executor", "api", "dlq-handler", *workers}
    assert set(STOCK) == set(OURS) | servers | monitoring
    assert {
        name for name, service in STOCK.items() if service.words.get("profiles") == ["monitoring"]
    } == monitoring


def test_images_are_pinned_and_can_be_replaced() -> None:
    for name, section in yaml.safe_load(COMPOSE_FILE.read_text())["services"].items():
        assert section["image"].startswith("${"), f"{name}: another registry cannot be used"
        assert STOCK[name].image.partition(":")[2] not in {"", "latest"}, name
    # What the tests use where there is Docker.
    assert STOCK["postgres"].image == POSTGRESQL_IMAGE
    assert STOCK["rabbitmq"].image == RABBITMQ_IMAGE


@pytest.mark.parametrize("service", OURS.values(), ids=OURS)
def test_ours_may_do_nothing_and_write_nothing(service: Service) -> None:
    assert service.words["read_only"] is True
    assert service.words["cap_drop"] == ["ALL"]
    assert service.words["security_opt"] == ["no-new-privileges:true"]
    assert service.words["tmpfs"] == ["/tmp"]


def test_nothing_is_reachable_from_another_machine() -> None:
    published = [port for service in STOCK.values() for port in service.words.get("ports", [])]
    assert len(published) == 8
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_every_mounted_file_is_there() -> None:
    mounted = [file for service in STOCK.values() for file in service.mounts.values()]
    assert len(mounted) == 5
    assert all(file.exists() for file in mounted)


def test_whatever_runs_has_a_health_check_and_waits_for_what_it_needs() -> None:
    for name, service in STOCK.items():
        assert ("healthcheck" in service.words) is (name != "migrate")
        for needed, condition in service.depends_on.items():
            expected = "service_completed_successfully" if needed == "migrate" else "service_healthy"
            assert condition == expected, f"{name} on {needed}"
    assert {"executor", "worker-shell", "worker-python", "worker-node"} <= STOCK["api"].depends_on.keys()
    assert {"migrate", "rabbitmq"} <= STOCK["dlq-handler"].depends_on.keys()


def test_the_sidecar_has_the_docker_settings_unchanged() -> None:
    sidecar = STOCK["dlq-handler"]
    assert sidecar.mounts == {sidecar.environment["ATTUNE_CONFIG"]: DOCKER_CONFIG}
    # Nothing but servers, and the heartbeat of the reference's workers, is said anywhere else.
    loaded = load(DOCKER_CONFIG, {**sidecar.environment, "ATTUNE_CONFIG": ""})
    assert set(loaded.overrides) == {"database.url", "message_queue.url", "worker.heartbeat_interval"}
    alone = load(DOCKER_CONFIG, {}).settings
    assert loaded.settings.database.url == alone.database.url
    assert loaded.settings.message_queue.url == alone.message_queue.url


def test_the_sidecar_ends_in_peace_before_it_is_killed() -> None:
    grace = load(DOCKER_CONFIG, {}).settings.dlq_handler.grace.shutdown_seconds
    assert STOCK["dlq-handler"].stop_grace_seconds > grace


def test_its_health_check_is_that_of_the_image() -> None:
    assert STOCK["dlq-handler"].health.command == of_dockerfile(r"HEALTHCHECK .* CMD")


def test_scaled_times_are_those_of_the_sandbox() -> None:
    file = ROOT / "deploy/compose/times.scaled.env"
    comment, *_ = file.read_text().splitlines()
    lines = [comment, *(f"{name}={value}" for name, value in sidecar_environment(SCALED).items()), ""]
    wanted = "\n".join(lines)
    assert file.read_text() == wanted, f"times have changed; write {file} anew:\n{wanted}"
    environment = services({"SANDBOX_TIMES": "scaled"})["dlq-handler"].environment
    assert environment.items() >= sidecar_environment(SCALED).items()
