"""The keys of the settings: name, variable, default, what is allowed; problems with them; the key that was meant.

The models are the only list of keys: messages, `config show` and the configuration reference all walk it.
"""

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from itertools import pairwise
from pathlib import Path as FilePath
from typing import Any

from pydantic import BaseModel

from dlq_handler.settings.model import Settings

Path = tuple[str, ...]

OWN_SECTION = "dlq_handler"
PREFIX = "ATTUNE__"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One setting.

    `attributes` is the way to it in a `Settings`, `path` the way to it in YAML and in a variable's name.
    """

    path: Path
    attributes: Path
    section: type[BaseModel]

    @property
    def schema(self) -> dict[str, Any]:
        return _schemas_of(self.section)[self.path[-1]]

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def variable(self) -> str:
        return variable_of(self.path)

    @property
    def description(self) -> str:
        return _descriptions_of(self.section)[self.attributes[-1]]

    @property
    def is_secret(self) -> bool:
        return "writeOnly" in str(self.schema)

    @property
    def default(self) -> object:
        return self.value_in(Settings())

    @property
    def wanted(self) -> str:
        return _in_words(self.schema)

    def value_in(self, settings: Settings) -> object:
        value: object = settings
        for attribute in self.attributes:
            value = getattr(value, attribute)
        return value


def variable_of(path: Path) -> str:
    return PREFIX + "__".join(path).upper()


@cache
def known_keys() -> dict[Path, Key]:
    return {key.path: key for key in _keys_of(Settings, (), ())}


@cache
def known_sections() -> dict[Path, str]:
    """The sections above the keys, with their docstrings."""
    return dict(_sections_of(Settings, ()))


def _keys_of(model: type[BaseModel], path: Path, attributes: Path) -> Iterator[Key]:
    for attribute, field in model.model_fields.items():
        name = field.alias or attribute
        there = ((*path, name), (*attributes, attribute))
        if (section := _section(field.annotation)) is not None:
            yield from _keys_of(section, *there)
        else:
            yield Key(path=there[0], attributes=there[1], section=model)


@cache
def _schemas_of(section: type[BaseModel]) -> dict[str, dict[str, Any]]:
    """On demand: building all schemas takes longer than reading all settings."""
    schemas: dict[str, dict[str, Any]] = section.model_json_schema()["properties"]
    return schemas


@cache
def _descriptions_of(section: type[BaseModel]) -> dict[str, str]:
    """The text below each field. Only the configuration reference needs it."""
    [definition] = ast.parse(inspect.getsource(section)).body
    body = definition.body if isinstance(definition, ast.ClassDef) else []
    return {
        field.target.id: " ".join(below.value.value.split())
        for field, below in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }


def _sections_of(model: type[BaseModel], path: Path) -> Iterator[tuple[Path, str]]:
    for attribute, field in model.model_fields.items():
        if (section := _section(field.annotation)) is not None:
            there = (*path, field.alias or attribute)
            yield there, section.__doc__ or ""
            yield from _sections_of(section, there)


def _section(annotation: Any) -> type[BaseModel] | None:
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _in_words(schema: dict[str, Any]) -> str:
    if "wanted" in schema:
        return str(schema["wanted"])
    if "anyOf" in schema:
        return " or ".join(_in_words(choice) for choice in schema["anyOf"])
    if "enum" in schema:
        return "one of " + ", ".join(str(choice) for choice in schema["enum"])
    match schema["type"]:
        case "integer":
            return "a whole number" + _range(schema)
        case "number":
            return "a number" + _range(schema)
        case "boolean":
            return "true or false"
        case "array":
            return "a list, each item " + _in_words(schema["items"])
        case "null":
            return "null"
        case _:
            return "text that is not empty"


def _range(schema: dict[str, Any]) -> str:
    least = schema.get("minimum", schema.get("exclusiveMinimum"))
    above = "above" if "exclusiveMinimum" in schema else "from"
    return f" {above} {least} to {schema['maximum']}" if least is not None else ""


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

    def __init__(self, problems: Iterable[Problem], files: Iterable[FilePath] = ()) -> None:
        self.problems = tuple(problems)
        self.files = tuple(files)
        super().__init__("\n".join(str(problem) for problem in self.problems))


ALIKE = 0.75


def meant_own(path: Path) -> Path | None:
    """The key of `dlq_handler:` that is most similar to `path`, also if it is in a wrong section."""
    if path[1:] in known_keys():
        return path[1:]  # one of Attune's keys, in the wrong section
    above = [path[:end] for end in range(len(path)) if path[:end] in known_sections()]
    candidates = [known for known in _known() if known[0] == OWN_SECTION and known not in above]
    best = max(candidates, key=lambda known: _likeness_of_own(path, known))
    return best if _likeness_of_own(path, best) >= ALIKE else None


def unknown_own_key(where: str, path: Path, spell: Callable[[Path], str]) -> Problem:
    """`spell` writes a key as it is written at that place: with dots in a file, in capitals in a variable."""
    if path in known_sections():
        found, remedy = "is a section and has no value of its own", "give its keys one by one"
    elif (meant := meant_own(path)) is not None:
        found, remedy = "is not a key of dlq-handler", f"did you mean {spell(meant)}?"
    else:
        found, remedy = "is not a key of dlq-handler", "remove it"
    return Problem(
        where=where,
        key=".".join(path),
        found=found,
        wanted="a key of docs/reference/configuration.md",
        remedy=remedy,
    )


def meant_elsewhere(path: Path) -> Path | None:
    """The key that a name outside `dlq_handler:` was perhaps meant to be.

    Strict, because Attune has many keys of its own: every part must be alike.
    """
    if path in _known():
        return None
    if path[0] != OWN_SECTION and _alike(path[0], OWN_SECTION):
        corrected = (OWN_SECTION, *path[1:])
        return corrected if corrected in _known() else meant_own(corrected) or (OWN_SECTION,)
    return next((key for key in known_keys() if len(key) == len(path) and all(map(_alike, path, key))), None)


def _known() -> list[Path]:
    return [*known_keys(), *known_sections()]


def _likeness_of_own(path: Path, known: Path) -> float:
    # `batch_size` for `batch.size` and `port` for `http.port` are the usual slips, besides letters swapped.
    whole = _likeness(".".join(path[1:]).replace("_", "."), ".".join(known[1:]).replace("_", "."))
    same_place = path[:-1] == known[:-1]
    in_place = _likeness(path[-1], known[-1]) if same_place else 0.0
    same_name = path[-1] == known[-1] or (same_place and path[-1].endswith(f"_{known[-1]}"))
    return max(whole, in_place, 0.8 if same_name else 0.0)


def _likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other).ratio()


def _alike(one: str, other: str) -> bool:
    return one == other or _likeness(one, other) >= ALIKE
