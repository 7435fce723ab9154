"""Of errors that came side by side only one can be raised: choose the worst, and let none of the others go unsaid.

A bug goes first: hidden behind a server that happened to be away, nobody would ever hear of it. Then what makes a loop
wait and tell why; last what only says that the work ended early, for that is done again anyway.
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
    """The one to raise. The others are logged here, but for those that say the very same."""
    worst, *others = sorted(errors, key=_rank)
    told = {repr(worst)}
    for other in others:
        if repr(other) in told:
            continue
        told.add(repr(other))
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
