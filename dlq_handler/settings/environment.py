"""Read the variables `ATTUNE__A__B__C`, and secrets out of the files that `ATTUNE__..._FILE` names.

A variable names one key. Those of Attune alone are ignored; one with DLQ_HANDLER in it that names no key is a
problem. A problem never holds a value.
"""

from collections.abc import Mapping
from pathlib import Path as FilePath

from pydantic_settings import EnvSettingsSource

from dlq_handler.settings.keys import OWN_SECTION, PREFIX, Path, known_keys, variable_of
from dlq_handler.settings.model import Settings
from dlq_handler.settings.problems import Problem
from dlq_handler.settings.spelling import unknown_own_key

FILE_SUFFIX = "_file"


class Variables(EnvSettingsSource):
    """The environment.

    `places`: the variable that gave a key. `unknown`: the variables that name no known key.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.places: dict[Path, str] = {}
        self.unknown: dict[Path, str] = {}
        self.empty: list[str] = []
        self.problems: list[Problem] = []
        self._environ = environ
        super().__init__(Settings, case_sensitive=False, env_prefix=PREFIX, env_nested_delimiter="__")

    def _load_env_vars(self) -> Mapping[str, str | None]:
        """Only known keys, one name per key in the form that pydantic-settings reads, contents of files included."""
        values: dict[str, str | None] = {}
        for name, value in sorted(self._environ.items()):
            if (path := self._path_of(name)) is None:
                continue
            key = known_keys().get(path) or known_keys().get(_without_suffix(path))
            if key is None or (key.path != path and not key.is_secret):
                self._note_unknown(name, path)
            elif not value:
                self.empty.append(name)  # `${URL:-}` in a compose file: as if it were not set
            elif key.path in self.places:
                self._refuse(
                    name, key.name, f"is also given by {self.places[key.path]}", "one of the two", "unset one"
                )
            else:
                self.places[key.path] = name
                content = value if key.path == path else self._content_of(name, key.name, FilePath(value))
                if content is not None:
                    values[variable_of(key.path).lower()] = None if content == "null" else content
        return values

    def _path_of(self, name: str) -> Path | None:
        folded = name.lower()
        if folded.startswith(PREFIX.lower()):
            return tuple(folded.removeprefix(PREFIX.lower()).split("__"))
        if folded.startswith("attune_") and "__" in folded:
            # ATTUNE_DLQ_HANDLER__HTTP__PORT has one underscore too few: unknown, and perhaps a typing error.
            return tuple(folded.removeprefix("attune").split("__"))
        return None

    def _note_unknown(self, name: str, path: Path) -> None:
        if path[0] == OWN_SECTION:
            self.problems.append(unknown_own_key(name, path, variable_of))
        else:
            self.unknown[path] = name

    def _content_of(self, name: str, key: str, file: FilePath) -> str | None:
        try:
            content = file.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not text in UTF-8"
            self._refuse(
                name,
                key,
                f"names {str(file)!r}, which cannot be read ({reason})",
                "a readable file",
                "correct it",
            )
            return None
        if not content:
            self._refuse(
                name, key, f"names {str(file)!r}, which is empty", "the secret in it", "write it there"
            )
            return None
        return content

    def _refuse(self, where: str, key: str, found: str, wanted: str, remedy: str) -> None:
        self.problems.append(Problem(where=where, key=key, found=found, wanted=wanted, remedy=remedy))


def _without_suffix(path: Path) -> Path:
    return (*path[:-1], path[-1].removesuffix(FILE_SUFFIX))
