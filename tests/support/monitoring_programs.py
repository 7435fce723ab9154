"""Where the programs of Prometheus and Alertmanager are: on PATH, or unpacked from Debian's packages."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sandbox.server_programs import packages
from sandbox.server_programs.errors import SourceUnavailable

PROMETHEUS_PACKAGE = "prometheus"
ALERTMANAGER_PACKAGE = "prometheus-alertmanager"

# Debian's Alertmanager reads its templates from here. As long as it was, and relative: to the folder it is started in.
TEMPLATES = b"/usr/share/prometheus/alertmanager"
TEMPLATES_OF_FOLDER = b"usr//share/prometheus/alertmanager"


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitoringPrograms:
    prometheus: Path
    promtool: Path
    alertmanager: Path
    alertmanager_folder: Path
    """Where it has to be started."""
    amtool: Path

    @classmethod
    async def find(cls) -> Self:
        """SourceUnavailable when one of them is neither on PATH nor to be had as a package."""
        # Debian calls Alertmanager by its package, everybody else by its name.
        alertmanager = await _found(ALERTMANAGER_PACKAGE, "alertmanager", "prometheus-alertmanager")
        root = packages.cache_folder() / ALERTMANAGER_PACKAGE
        return cls(
            prometheus=await _found(PROMETHEUS_PACKAGE, "prometheus"),
            promtool=await _found(PROMETHEUS_PACKAGE, "promtool"),
            alertmanager=alertmanager,
            alertmanager_folder=root if alertmanager.is_relative_to(root) else Path("/"),
            amtool=await _found(ALERTMANAGER_PACKAGE, "amtool"),
        )


async def _found(package: str, *names: str) -> Path:
    for name in names:
        if program := shutil.which(name):
            return Path(program)
    root = await packages.unpacked(package, point_at_templates)
    for name in names:
        unpacked = root / "usr" / "bin" / name
        if unpacked.exists():
            return unpacked
    raise SourceUnavailable(f"{root} holds no {names[0]}; remove that folder and try again")


def point_at_templates(unpacked: Path, _final: Path) -> None:
    """Without its templates Alertmanager does not start."""
    program = unpacked / "usr" / "bin" / "prometheus-alertmanager"
    if program.exists():
        program.write_bytes(program.read_bytes().replace(TEMPLATES, TEMPLATES_OF_FOLDER))
