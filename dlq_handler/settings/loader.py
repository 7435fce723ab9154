"""Load the settings: files, then variables over them. The only place that reads the configuration.

Finds all problems at once: if a key is invalid, the others are still checked against each other without it.
Shows an invalid value only if the key is no secret, and redacted even then.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path as FilePath
from typing import Any, ClassVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import InitSettingsSource, PydanticBaseSettingsSource

from dlq_handler.masking import without_passwords
from dlq_handler.settings.contradictions import contradictions, warnings
from dlq_handler.settings.keys import (
    ConfigError,
    Path,
    Problem,
    known_keys,
    known_sections,
    meant_elsewhere,
    unknown_own_key,
    variable_of,
)
from dlq_handler.settings.model import Settings, derived_values
from dlq_handler.settings.sources import Variables, YamlFile, files_to_read

DEFAULT = "default"
DERIVED = "derived"
_TIMEOUT = "executor.scheduled_timeout"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Settings that can be used, and their origins, one for every key."""

    settings: Settings
    files: tuple[FilePath, ...]
    overrides: Mapping[str, str]
    """Key to the variable that gave it."""
    origins: Mapping[str, str]
    """Key to `file:line`, variable, `default`, or `derived` where an empty key follows from others."""
    warnings: tuple[str, ...]


def load(config: FilePath | None, environ: Mapping[str, str]) -> Loaded:
    """Raises `ConfigError` with every problem there is.

    `config` is what --config says, None when it was not given.
    """
    files = files_to_read(config, environ)
    variables = Variables(environ)
    yaml_files = [YamlFile(file) for file in files]
    weakest_first: list[YamlFile | Variables] = [*yaml_files, variables]
    places = dict(chain.from_iterable(source.places.items() for source in weakest_first))
    problems = [problem for source in weakest_first for problem in source.problems]
    if any(source.is_unreadable for source in yaml_files):
        # The content of such a file is unknown, so the values cannot be checked.
        raise ConfigError(problems, files)
    settings, found = validate(weakest_first[::-1], places)
    if problems or found:
        raise ConfigError((*problems, *found), files)
    return Loaded(
        settings=settings,
        files=files,
        overrides={".".join(path): variable for path, variable in variables.places.items()},
        origins=_origins(settings, places),
        warnings=(*_typing_errors(yaml_files, variables), *warnings(settings)),
    )


def _origins(settings: Settings, places: Mapping[Path, str]) -> dict[str, str]:
    derived = derived_values(settings)
    origins = {
        key.name: DERIVED
        if key.name in derived and not key.value_in(settings)
        else places.get(key.path, DEFAULT)
        for key in known_keys().values()
    }
    if settings.executor.scheduled_timeout < settings.deadline_seconds:
        given = origins[_TIMEOUT]
        origins[_TIMEOUT] = DERIVED if given == DEFAULT else f"{given}, raised"
    return origins


def _typing_errors(yaml_files: Iterable[YamlFile], variables: Variables) -> Iterator[str]:
    for name in variables.empty:
        yield f"{name} is empty and was ignored, as if it were not set"
    for path, name in variables.unknown.items():
        if meant := meant_elsewhere(path):
            yield f"{name} is ignored: not a known key; did you mean {variable_of(meant)}?"
    for path, place in chain.from_iterable(source.unknown.items() for source in yaml_files):
        if meant := meant_elsewhere(path):
            yield f"{place}: {'.'.join(path)} is ignored: not a known key; did you mean {'.'.join(meant)}?"


LONGEST_SHOWN = 60
NO_SUCH_KEY = {"extra_forbidden", "invalid_key"}  # the latter is a key that is no text, such as `1:`


def validate(
    sources: Sequence[PydanticBaseSettingsSource], places: Mapping[Path, str]
) -> tuple[Settings, list[Problem]]:
    """`sources` from strongest to weakest. The settings are only to be used when there is no problem."""
    try:
        settings, problems, bad = _built(sources), [], set[Path]()
    except ValidationError as error:
        details = error.errors(include_url=False)
        bad = {_path_of(detail) for detail in details}
        problems = [_problem(detail, places) for detail in details]
        settings = _built([InitSettingsSource(Settings, _without(source(), bad)) for source in sources])
    return settings, problems + _contradictions(settings, places, {".".join(path) for path in bad})


def _built(strongest_first: Iterable[PydanticBaseSettingsSource]) -> Settings:
    class Sourced(Settings):
        sources: ClassVar[tuple[PydanticBaseSettingsSource, ...]] = tuple(strongest_first)

    return Sourced()


def _problem(detail: ErrorDetails, places: Mapping[Path, str]) -> Problem:
    path = _path_of(detail)
    where = places.get(path, "settings")
    if path not in known_keys() and detail["type"] in NO_SUCH_KEY:
        return unknown_own_key(where, path, ".".join)
    key = known_keys().get(path)
    item = f" (item {detail['loc'][len(path)]})" if len(detail["loc"]) > len(path) else ""
    wanted = key.wanted if key else "a section with keys of its own"
    if detail["type"] == "value_error":
        wanted = str(detail["ctx"]["error"])
    found = "cannot be used" if key is None or key.is_secret else f"is {_shown(detail['input'])}"
    return Problem(
        where=where, key=".".join(path) + item, found=found, wanted=wanted, remedy="correct the value"
    )


def _path_of(detail: ErrorDetails) -> Path:
    loc = tuple(str(part) for part in detail["loc"])
    if detail["type"] in NO_SUCH_KEY and not _is_within_a_key(loc):
        return loc
    # Below a key there are only items of a list, or names that pydantic gives to the branches of a union.
    return next(
        (loc[:end] for end in range(len(loc), 0, -1) if loc[:end] in (known_keys() | known_sections())), loc
    )


def _is_within_a_key(loc: Path) -> bool:
    """In an item of a list, whose keys are no settings: it is the list that is wrong, and left out."""
    return any(loc[:end] in known_keys() for end in range(1, len(loc)))


def _shown(value: object) -> str:
    text = without_passwords(repr(value))
    return text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "..."


def _without(values: Mapping[str, Any], bad: Iterable[Path], section: Path = ()) -> dict[str, Any]:
    kept = {name: value for name, value in values.items() if (*section, str(name)) not in bad}
    return {
        name: _without(value, bad, (*section, name)) if isinstance(value, dict) else value
        for name, value in kept.items()
    }


def _contradictions(settings: Settings, places: Mapping[Path, str], bad: set[str]) -> list[Problem]:
    return [
        Problem(
            where=next(
                (places[path] for key in found.keys if (path := tuple(key.split("."))) in places), "defaults"
            ),
            key=found.keys[0],
            found=found.found,
            wanted=found.wanted,
            remedy=found.remedy,
        )
        for found in contradictions(settings)
        if not bad.intersection(found.keys)
    ]
