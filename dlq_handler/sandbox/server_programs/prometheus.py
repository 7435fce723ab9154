"""Where the programs of Prometheus and Alertmanager are: on PATH, or unpacked from Debian's packages."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from dlq_handler.sandbox.server_programs import packages
from dlq_handler.sandbox.server_programs.errors import WayClosed

# Debian calls Alertmanager by its package, everybody else by its name.
PROMETHEUS = ("prometheus",)
PROMTOOL = ("promtool",)
ALERTMANAGER = ("alertmanager", "prometheus-alertmanager")
AMTOOL = ("amtool",)


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitoringPrograms:
    prometheus: Path
    promtool: Path
    alertmanager: Path
    amtool: Path

    @classmethod
    async def find(cls) -> Self:
        """WayClosed when one of them is neither on PATH nor to be had as a package."""
        return cls(
            prometheus=await _found(PROMETHEUS, "prometheus"),
            promtool=await _found(PROMTOOL, "prometheus"),
            alertmanager=await _found(ALERTMANAGER, "prometheus-alertmanager"),
            amtool=await _found(AMTOOL, "prometheus-alertmanager"),
        )


async def _found(names: tuple[str, ...], package: str) -> Path:
    for name in names:
        if program := shutil.which(name):
            return Path(program)
    root = await packages.unpacked(package)
    for name in names:
        if (program_of_package := root / "usr" / "bin" / name).exists():
            return program_of_package
    raise WayClosed(f"{root} holds no {names[0]}; remove that folder and try again")
