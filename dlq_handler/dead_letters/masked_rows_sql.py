"""Rows as people may read them: the one place where what may be secret in a record is masked.

An error quotes what it is about: the row that a trigger refused, the address that did not answer. So every record
that leaves the store to be read is made from here. What is on record stays as it was, and what decides reads that.
"""

from typing import Any

from sqlalchemy import Row

from dlq_handler.masking import masked, masked_text

_TEXTS = frozenset({"explanation", "error", "last_error"})
_OBJECTS = frozenset({"evidence", "headers"})


def for_people(row: Row[Any]) -> dict[str, Any]:
    """Its columns by name. A body is left as it is: the page that shows it masks it by its type."""
    return {name: _shown(name, value) for name, value in row._asdict().items()}


def _shown(name: str, value: Any) -> Any:
    if name in _TEXTS and value is not None:
        return masked_text(value)
    return masked(value) if name in _OBJECTS else value
