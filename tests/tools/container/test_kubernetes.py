"""The manifests of deploy/ by the Kubernetes API's schema, strictly, and by what they promise together."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dlq_handler import __version__
from dlq_handler.settings import load
from tests.support.compose_file import ROOT

DEPLOY = ROOT / "deploy"
MANIFESTS = sorted(DEPLOY.rglob("*.yaml"))
DOCKER_CONFIG = ROOT / "config.docker.yaml"


def manifest(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text())


STANDALONE = manifest("standalone/deployment.yaml")["spec"]
BESIDE = manifest("sidecar/executor.yaml")["spec"]
CONTAINERS = {
    "standalone": (STANDALONE["template"]["spec"], STANDALONE["template"]["spec"]["containers"][0]),
    "sidecar": (BESIDE["template"]["spec"], BESIDE["template"]["spec"]["initContainers"][0]),
}
each_way = pytest.mark.parametrize(("pod", "container"), CONTAINERS.values(), ids=CONTAINERS)


def test_every_manifest_fits_the_schema() -> None:
    validate = [sys.executable, "-m", "kubernetes_validate", "--strict", *map(str, MANIFESTS)]
    validated = subprocess.run(validate, capture_output=True, text=True, check=False)
    assert validated.returncode == 0, validated.stdout + validated.stderr
    output = validated.stdout + validated.stderr
    assert all(str(path) in output for path in MANIFESTS)
    assert len(MANIFESTS) == 6


def test_the_config_map_is_the_docker_config_word_for_word() -> None:
    copied = manifest("configmap.yaml")["data"]["config.yaml"]
    assert copied == DOCKER_CONFIG.read_text(), (
        f"copy {DOCKER_CONFIG} into deploy/configmap.yaml, four spaces in"
    )


def test_the_example_of_a_secret_holds_none() -> None:
    for url in manifest("secret.example.yaml")["stringData"].values():
        assert "://USER:PASSWORD@" in url


@each_way
def test_secrets_come_as_files_that_the_settings_read(
    pod: dict[str, Any], container: dict[str, Any], tmp_path: Path
) -> None:
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    secret = manifest("secret.example.yaml")
    environ = {}
    for variable in container["env"]:
        folder, _, file = variable["value"].rpartition("/")
        volume = volumes[mounts[folder]]
        if "secret" in volume:
            assert volume["secret"]["secretName"] == secret["metadata"]["name"]
            (tmp_path / file).write_text(secret["stringData"][file])
        else:
            assert volume["configMap"]["name"] == manifest("configmap.yaml")["metadata"]["name"]
            (tmp_path / file).write_text(manifest("configmap.yaml")["data"][file])
        environ[variable["name"]] = str(tmp_path / file)
    loaded = load(None, environ)
    assert loaded.files == (tmp_path / "config.yaml",)
    assert set(loaded.overrides) == {"database.url", "message_queue.url"}


@each_way
def test_it_is_a_plain_user_on_a_read_only_root_with_no_rights(
    pod: dict[str, Any], container: dict[str, Any]
) -> None:
    rights = pod["securityContext"] | container["securityContext"]
    assert rights["runAsNonRoot"] is True
    assert rights["runAsUser"] == 65532
    assert rights["readOnlyRootFilesystem"] is True
    assert rights["allowPrivilegeEscalation"] is False
    assert rights["capabilities"] == {"drop": ["ALL"]}
    assert rights["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert container["resources"]["limits"]["memory"]


@each_way
def test_it_is_probed_where_it_listens(pod: dict[str, Any], container: dict[str, Any]) -> None:
    port = container["ports"][0]
    assert port["containerPort"] == load(DOCKER_CONFIG, {}).settings.dlq_handler.http.port
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": port["name"]}
    assert container["image"].endswith(f":{__version__}")


def test_a_roll_out_waits_for_ready_replicas() -> None:
    _, container = CONTAINERS["standalone"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert STANDALONE["replicas"] == 2
    assert manifest("standalone/disruption-budget.yaml")["spec"]["minAvailable"] == 1


def test_labels_lead_from_one_manifest_to_the_other() -> None:
    labels = STANDALONE["template"]["metadata"]["labels"]
    assert STANDALONE["selector"]["matchLabels"] == labels
    assert manifest("standalone/disruption-budget.yaml")["spec"]["selector"]["matchLabels"] == labels
    assert manifest("standalone/service.yaml")["spec"]["selector"] == labels


def test_there_is_time_to_end_in_peace() -> None:
    grace = load(DOCKER_CONFIG, {}).settings.dlq_handler.grace.shutdown_seconds
    assert CONTAINERS["standalone"][0]["terminationGracePeriodSeconds"] > grace
    executor = 30
    assert CONTAINERS["sidecar"][0]["terminationGracePeriodSeconds"] > executor + grace


def test_the_sidecar_outlives_the_executor_and_does_not_hold_it_up() -> None:
    _, container = CONTAINERS["sidecar"]
    assert container["restartPolicy"] == "Always"
    assert container["startupProbe"]["httpGet"]["path"] == "/healthz"
    assert "readinessProbe" not in container
