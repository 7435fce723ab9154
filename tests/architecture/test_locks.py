"""The locks hold everywhere: every file by its hash, no place it would have to come from, nothing missing."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RUNTIME: list[str] = PROJECT["dependencies"]
DEV: list[str] = PROJECT["optional-dependencies"]["dev"]


def locked(lock: str) -> dict[str, str]:
    """Name to its pin with markers and hashes."""
    text = (ROOT / lock).read_text().replace("\\\n", "")
    return dict(line.split("==", 1) for line in text.splitlines() if not line.startswith("#"))


def plain_name(requirement: str) -> str:
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name
    return name.group().lower().replace("_", "-")


@pytest.mark.parametrize(
    ("lock", "wanted"), [("requirements.lock", RUNTIME + DEV), ("requirements.runtime.lock", RUNTIME)]
)
def test_every_dependency_is_locked_by_hash_and_nowhere_by_place(lock: str, wanted: list[str]) -> None:
    pins = locked(lock)
    assert {plain_name(requirement) for requirement in wanted} <= set(pins)
    assert all("--hash=sha256:" in pin for pin in pins.values())
    text = (ROOT / lock).read_text()
    assert "://" not in text
    assert "--index" not in text
    assert "--find-links" not in text


@pytest.mark.parametrize("library", ["aio-pika", "aiormq", "pamqp"])
def test_libraries_whose_internals_are_used_have_an_upper_bound_that_the_locks_meet(library: str) -> None:
    (wanted,) = [Requirement(one) for one in RUNTIME if plain_name(one) == library]
    assert {one.operator for one in wanted.specifier} == {">=", "<"}
    for lock in ("requirements.lock", "requirements.runtime.lock"):
        assert wanted.specifier.contains(locked(lock)[library].split()[0]), lock


def test_the_container_gets_the_versions_that_were_tested() -> None:
    tested = locked("requirements.lock")
    assert {
        name: pin for name, pin in locked("requirements.runtime.lock").items() if tested.get(name) != pin
    } == {}
