"""Parse the text with which RabbitMQ refuses a declare that differs from the existing queue or exchange.

Any other text results in None, never in an error.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The first argument (or flag) that differs, and its current value; None: it is not set.

    A value is a number only if the broker gives a number type: an exchange may be called '123'.
    """

    argument: str
    current: str | int | None


_INEQUIVALENT = re.compile(r"inequivalent arg '([^']+)' for (?:queue|exchange) ")
_TYPED = re.compile(r"the value '(?P<value>.*)' of type '(?P<type>\w+)'", re.DOTALL)
_UNTYPED = re.compile(r"'(?P<value>.*)'", re.DOTALL)
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,19}")
_TEXT_TYPES = frozenset({"longstr", "shortstr"})


def read_refusal(text: str) -> Refusal | None:
    """None: the text is not the refusal of an object that exists with other arguments."""
    found = _INEQUIVALENT.search(text)
    # The last occurrence: a queue's name may contain any text, but it comes before.
    _, separator, tail = text.rpartition(" but current is ")
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
