"""Read the sentence with which RabbitMQ refuses a declare that differs from what exists.

Odd text is None, never an error.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The first argument (or flag) that differs, and what it is now; None when it is not set.

    A number is only a number here when the broker said so: an exchange may be called '123'.
    """

    argument: str
    current: str | int | None


_INEQUIVALENT = re.compile(r"inequivalent arg '([^']+)' for (?:queue|exchange) ")
_TYPED = re.compile(r"the value '(?P<value>.*)' of type '(?P<type>\w+)'", re.DOTALL)
_UNTYPED = re.compile(r"'(?P<value>.*)'", re.DOTALL)
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,19}")
_TEXT_TYPES = frozenset({"longstr", "shortstr"})


def read_refusal(said: str) -> Refusal | None:
    """None when this is not the refusal of something that exists with other arguments."""
    found = _INEQUIVALENT.search(said)
    # The last one: a queue's name may hold any text, but it comes before.
    _, separator, tail = said.rpartition(" but current is ")
    if found is None or not separator:
        return None
    tail = tail.strip()
    if tail == "none":
        return Refusal(argument=found[1], current=None)
    if typed := _TYPED.fullmatch(tail):
        is_number = typed["type"] not in _TEXT_TYPES and _WHOLE_NUMBER.fullmatch(typed["value"])
        return Refusal(argument=found[1], current=int(typed["value"]) if is_number else typed["value"])
    if untyped := _UNTYPED.fullmatch(tail):
        return Refusal(argument=found[1], current=untyped["value"])
    return None
