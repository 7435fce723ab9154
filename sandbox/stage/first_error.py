"""One readable error instead of a tree of traces."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def raise_first_error() -> Iterator[None]:
    """Around a TaskGroup: of several tasks that failed, the first is the story and the others its consequences."""
    try:
        yield
    except ExceptionGroup as several:
        raise several.exceptions[0] from several
