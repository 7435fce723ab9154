"""Guess which key was meant by an unknown name. Guesses are for people; no code acts on them."""

from collections.abc import Callable
from difflib import SequenceMatcher

from dlq_handler.settings.keys import OWN_SECTION, Path, known_keys, known_sections
from dlq_handler.settings.problems import Problem

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
