"""Every key, from the models: its name, its variable, its default, what is allowed.

The models are the only list of keys: messages, `config show` and the configuration reference all walk it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
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
        return str(self.schema.get("description", ""))

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
