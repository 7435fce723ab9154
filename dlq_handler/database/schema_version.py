"""Which version the tables of dlq-handler have, and whether this program can use them. Pure."""

import re
from collections.abc import Collection
from dataclasses import dataclass

from dlq_handler.errors import SchemaUnfit


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaVersion:
    version: str | None
    """Of the newest migration that was applied. None: there are no tables."""
    least_program_version: str | None
    """The oldest program that can use these tables. None: there are none, or a version before 0.1.0 made them."""
    known: Collection[str]
    """Versions of the migrations that this program has."""
    program_version: str

    @property
    def wanted(self) -> str:
        return max(self.known)

    @property
    def is_newer(self) -> bool:
        return self.version is not None and self.version > self.wanted

    @property
    def needs_upgrade(self) -> bool:
        """The program has migrations that are not applied, and can apply them."""
        return self.version is None or (self.least_program_version is not None and self.version < self.wanted)

    @property
    def problem(self) -> str | None:
        """Why this program cannot use the tables, and what to do. None: it can."""
        if self.version is None:
            return (
                f"The tables of dlq-handler are missing (version {self.wanted}). Run `dlq-handler migrate`."
            )
        if self.least_program_version is None:
            return (
                f"The tables of dlq-handler have version {self.version} of a development before 0.1.0, which cannot "
                "be upgraded. Drop their schema, then run `dlq-handler migrate`."
            )
        if self.needs_upgrade:
            return (
                f"The tables of dlq-handler have version {self.version}; this program needs {self.wanted}. "
                "Run `dlq-handler migrate`."
            )
        if _as_numbers(self.program_version) < _as_numbers(self.least_program_version):
            return (
                f"The tables of dlq-handler have version {self.version}, which needs dlq-handler "
                f"{self.least_program_version} or newer; this is {self.program_version}. Upgrade dlq-handler."
            )
        return None

    @property
    def note(self) -> str | None:
        """For tables that are newer than this program and usable."""
        if self.problem is not None or not self.is_newer:
            return None
        return (
            f"The tables of dlq-handler have version {self.version}, newer than {self.wanted} of this program "
            f"({self.program_version}). It works with them; finish the upgrade of all replicas."
        )

    def check(self) -> None:
        if self.problem is not None:
            raise SchemaUnfit(self.problem)


def _as_numbers(version: str) -> tuple[int, ...]:
    """`1.10.0rc1` is older than nothing and newer than `1.9.3`: only the numbers of the release count."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
