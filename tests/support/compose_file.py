"""docker-compose.yml as an engine reads it: variables put in, files of variables read, each service with its own words.

Only what our file uses; anything else is an error, so that a new construct is not silently passed over.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
COMPOSE_FILE = ROOT / "docker-compose.yml"
DOCKERFILE = ROOT / "Dockerfile"
PRODUCT = "product"
"""The stage of the production image."""

HEALTHY = "service_healthy"
COMPLETED = "service_completed_successfully"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    command: tuple[str, ...]
    interval_seconds: float
    timeout_seconds: float
    retries: int
    start_period_seconds: float

    @property
    def patience_seconds(self) -> float:
        """After this long without a success an engine calls the service unhealthy."""
        return self.start_period_seconds + self.retries * (self.interval_seconds + self.timeout_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    name: str
    words: dict[str, Any]
    """The section, variables put in."""

    @property
    def image(self) -> str:
        return str(self.words["image"])

    @property
    def is_ours(self) -> bool:
        return "build" in self.words

    @property
    def command(self) -> tuple[str, ...]:
        """The whole line: what the file leaves out is the image's."""
        target = self.words.get("build", {}).get("target", PRODUCT)
        return (
            *self.words.get("entrypoint", of_dockerfile("ENTRYPOINT", target)),
            *self.words.get("command", of_dockerfile("CMD", target)),
        )

    @property
    def environment(self) -> dict[str, str]:
        """Files first, `environment` over them."""
        found: dict[str, str] = {}
        for name in self.words.get("env_file", []):
            lines = (ROOT / name).read_text().splitlines()
            found |= dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
        return found | {name: str(value) for name, value in self.words.get("environment", {}).items()}

    @property
    def depends_on(self) -> dict[str, str]:
        return {name: needed["condition"] for name, needed in self.words.get("depends_on", {}).items()}

    @property
    def mounts(self) -> dict[str, Path]:
        """Place in the container to file or folder here, without named volumes."""
        volumes = (str(volume).split(":") for volume in self.words.get("volumes", []))
        return {volume[1]: ROOT / volume[0] for volume in volumes if volume[0].startswith("./")}

    @property
    def health(self) -> HealthCheck:
        check = self.words["healthcheck"]
        kind, *command = check["test"]
        assert kind == "CMD", f"{self.name}: a health check goes without a shell, not {kind}"
        return HealthCheck(
            command=tuple(command),
            interval_seconds=seconds(check["interval"]),
            timeout_seconds=seconds(check["timeout"]),
            retries=check["retries"],
            start_period_seconds=seconds(check["start_period"]),
        )

    @property
    def stop_grace_seconds(self) -> float:
        return seconds(self.words.get("stop_grace_period", "10s"))


def services(environ: Mapping[str, str]) -> dict[str, Service]:
    """In an order in which they may be started."""
    words = put_in(yaml.safe_load(COMPOSE_FILE.read_text())["services"], environ)
    found = {name: Service(name=name, words=section) for name, section in words.items()}
    order = TopologicalSorter({name: service.depends_on.keys() for name, service in found.items()})
    return {name: found[name] for name in order.static_order()}


def put_in(value: Any, environ: Mapping[str, str]) -> Any:
    """`value` with every `${NAME:-default}` replaced."""
    match value:
        case dict():
            return {key: put_in(item, environ) for key, item in value.items()}
        case list():
            return [put_in(item, environ) for item in value]
        case str():
            text = re.sub(r"\$\{(\w+):-([^}]*)\}", lambda found: environ.get(found[1]) or found[2], value)
            assert "$" not in text, f"{value!r}: only ${{NAME:-default}} is understood here"
            return text
        case _:
            return value


def seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+)s", text)
    assert match, f"{text!r}: only whole seconds such as 90s are understood here"
    return float(match[1])


def stage_of_dockerfile(name: str) -> str:
    """The instructions of one stage, without its FROM line."""
    stage = re.search(rf"(?ms)^FROM \S+ AS {name}$(.*?)(?=^FROM |\Z)", DOCKERFILE.read_text())
    assert stage, f"the Dockerfile has no stage {name!r}"
    return stage[1]


def of_dockerfile(instruction: str, stage: str = PRODUCT) -> tuple[str, ...]:
    """The exec form of the last `instruction` in that stage; nothing where there is none."""
    found = re.findall(rf"(?m)^{instruction} (\[.*\])$", stage_of_dockerfile(stage))
    return tuple(json.loads(found[-1])) if found else ()
