"""Load the settings: files, then variables over them.

The only place that reads the configuration.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path as FilePath

from dlq_handler.settings.contradictions import warnings
from dlq_handler.settings.environment import Variables
from dlq_handler.settings.files import YamlFile, files_to_read
from dlq_handler.settings.keys import Path, known_keys, variable_of
from dlq_handler.settings.model import Settings, derived_values
from dlq_handler.settings.problems import ConfigError
from dlq_handler.settings.spelling import meant_elsewhere
from dlq_handler.settings.validation import validate

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
