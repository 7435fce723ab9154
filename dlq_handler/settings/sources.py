"""Read the YAML files, the variables `ATTUNE__A__B__C`, and secrets out of the files that `ATTUNE__..._FILE` names.

Opens only the file that was named, or those that Attune itself would open. A file that cannot be used is a problem,
never an exception. Sections and variables that are Attune's alone are ignored; one with DLQ_HANDLER in it that names no
key is a problem. A problem never holds a value.
"""

import re
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

import yaml
from pydantic_settings import EnvSettingsSource, YamlConfigSettingsSource

from dlq_handler.settings.keys import (
    OWN_SECTION,
    PREFIX,
    Path,
    Problem,
    known_keys,
    known_sections,
    unknown_own_key,
    variable_of,
)
from dlq_handler.settings.model import Settings

SECTION = "a section with keys of its own"


def files_to_read(named: FilePath | None, environ: Mapping[str, str]) -> tuple[FilePath, ...]:
    """In the order of merging, later over earlier.

    A file that was named stands alone, and is listed even if missing.
    """
    if named is None and environ.get("ATTUNE_CONFIG"):
        named = FilePath(environ["ATTUNE_CONFIG"])
    if named is not None:
        return (named,)
    environment = environ.get("ATTUNE__ENVIRONMENT") or "development"
    usual = (FilePath("config.yaml"), FilePath(f"config.{environment}.yaml"))
    return tuple(file for file in usual if file.exists())


class YamlFile(YamlConfigSettingsSource):
    """One file.

    `places`: the line of each key. `unknown`: the keys of shared sections that dlq-handler does not know.
    """

    def __init__(self, file: FilePath) -> None:
        self.file = file
        self.places: dict[Path, str] = {}
        self.unknown: dict[Path, str] = {}
        self.problems: list[Problem] = []
        self.is_unreadable = False
        if not file.is_file():
            is_there = "is not a file" if file.exists() else "does not exist"
            self._refuse_file(
                str(file), is_there, "a YAML file", "name a file with --config or ATTUNE_CONFIG"
            )
        super().__init__(Settings, yaml_file=file)

    def _read_file(self, file_path: Any) -> dict[str, Any]:
        try:
            text = file_path.read_text(encoding="utf-8")
            loader = yaml.SafeLoader(text)
            root = loader.get_single_node()
            values = loader.construct_document(root) if root else None
        except OSError as error:
            self._refuse_file(
                str(self.file), f"cannot be read ({error.strerror})", "a readable file", "check its rights"
            )
        except UnicodeDecodeError:
            self._refuse_file(str(self.file), "is not UTF-8", "text in UTF-8", "save it as UTF-8")
        except yaml.MarkedYAMLError as error:
            self._refuse_file(
                self._marked(error), f"is not YAML: {_without_quotes(error)}", "YAML", "correct the syntax"
            )
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            # Control characters, a date such as 2024-99-99, or brackets nested beyond reason.
            self._refuse_file(
                str(self.file), f"is not YAML ({type(error).__name__})", "YAML", "correct the syntax"
            )
        else:
            if isinstance(values, dict):
                return self._known_part(root, values, ())
            if values is None:  # empty, or nothing but comments
                return {}
            self._refuse_file(
                str(self.file), "holds a single value or a list", "sections such as database:", "correct it"
            )
        return {}

    def _known_part(self, node: yaml.Node | None, values: Any, section: Path) -> dict[str, Any]:
        """`values` without keys that are Attune's alone and without empty sections."""
        self._note_places(node, section)
        known: dict[str, Any] = {}
        for name, value in values.items():
            path = (*section, str(name))  # YAML has keys that are no text: `7:` or `yes:`
            if path not in known_sections():
                if path[0] != OWN_SECTION and path not in known_keys():
                    self.unknown[path] = self.places.get(path, str(self.file))
                elif section:
                    known[name] = value
            elif isinstance(value, dict):
                known[name] = self._known_part(_child(node, name), value, path)
            elif value is not None:
                where = self.places.get(path, str(self.file))
                self._refuse(where, "is a single value or a list", SECTION, "indent its keys below it", path)
        return known

    def _note_places(self, node: yaml.Node | None, section: Path) -> None:
        if not isinstance(node, yaml.MappingNode):
            return
        for key, _ in node.value:
            path = (*section, str(key.value))
            place = f"{self.file}:{key.start_mark.line + 1}"
            if path in self.places and path[0] == OWN_SECTION:
                found = f"is given twice, first at {self.places[path]}"
                self._refuse(place, found, "each key once", "remove one of them", path)
            self.places[path] = place

    def _marked(self, error: yaml.MarkedYAMLError) -> str:
        mark = error.problem_mark or error.context_mark
        return f"{self.file}:{mark.line + 1}:{mark.column + 1}" if mark else str(self.file)

    def _refuse_file(self, where: str, found: str, wanted: str, remedy: str) -> None:
        self.is_unreadable = True
        self._refuse(where, found, wanted, remedy)

    def _refuse(self, where: str, found: str, wanted: str, remedy: str, path: Path = ()) -> None:
        self.problems.append(
            Problem(where=where, key=".".join(path), found=found, wanted=wanted, remedy=remedy)
        )


def _child(node: yaml.Node | None, name: str) -> yaml.Node | None:
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    # The last one, as the loader has it; none where the key came through a merge (`<<`).
    return next((value for key, value in reversed(pairs) if key.value == name), None)


def _without_quotes(error: yaml.MarkedYAMLError) -> str:
    # An unquoted password that begins with `*` or `!` is quoted in the error as an alias or a tag.
    return re.sub(r"'[^'<][^']+'", "'...'", error.problem or error.context or "syntax error")


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
