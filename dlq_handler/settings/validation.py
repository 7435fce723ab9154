"""Build the settings from their sources, and list problems that name file or variable.

Finds all problems at once: if a key is invalid, the others are still checked against each other without it.
Shows an invalid value only if the key is no secret, and redacted even then.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import InitSettingsSource, PydanticBaseSettingsSource

from dlq_handler.masking import without_passwords
from dlq_handler.settings.contradictions import contradictions
from dlq_handler.settings.keys import Path, known_keys, known_sections
from dlq_handler.settings.model import Settings
from dlq_handler.settings.problems import Problem
from dlq_handler.settings.spelling import unknown_own_key

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
