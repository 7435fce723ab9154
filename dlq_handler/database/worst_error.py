"""Choose which of several errors is raised, and log the others.

A bug comes first: an unavailable server must not hide it. Then errors that make a loop wait. Last come errors that only
end the work early, because that work is repeated anyway.
"""

from collections.abc import Sequence
from enum import IntEnum

import structlog

from dlq_handler.database.leadership import LeaseLost
from dlq_handler.errors import Contended, Unavailable

log = structlog.get_logger()


class _Rank(IntEnum):
    CALLED_OFF = 0
    BUG = 1
    AWAY = 2
    CUT_SHORT = 3


def worst_error(errors: Sequence[BaseException], *, loop: str) -> BaseException:
    """The error to raise. The others are logged here, except repeats."""
    worst, *others = sorted(errors, key=_rank)
    logged = {repr(worst)}
    for other in others:
        if repr(other) in logged:
            continue
        logged.add(repr(other))
        if _rank(other) is _Rank.BUG:
            log.error("loop.crashed", loop=loop, exc_info=other)
        else:
            log.info("loop.further_error", loop=loop, error=str(other))
    return worst


def _rank(error: BaseException) -> _Rank:
    if not isinstance(error, Exception):
        return _Rank.CALLED_OFF
    if isinstance(error, LeaseLost | Contended):
        return _Rank.CUT_SHORT
    return _Rank.AWAY if isinstance(error, Unavailable) else _Rank.BUG
