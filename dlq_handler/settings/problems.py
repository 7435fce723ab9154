"""Problems of the settings, one readable line each. They hold no secret: values in them are redacted."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One correction to make: file or variable, key, what was given, what is allowed, what to do."""

    where: str
    key: str
    found: str
    wanted: str
    remedy: str

    def __str__(self) -> str:
        subject = f"{self.where}: {self.key}" if self.key else self.where
        return f"{subject} {self.found}; wanted {self.wanted}; {self.remedy}"


class ConfigError(Exception):
    """The settings cannot be used. Carries every problem found, not only the first."""

    exit_code = 78

    def __init__(self, problems: Iterable[Problem], files: Iterable[Path] = ()) -> None:
        self.problems = tuple(problems)
        self.files = tuple(files)
        super().__init__("\n".join(str(problem) for problem in self.problems))
