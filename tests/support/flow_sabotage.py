"""Run the sidecar, and kill or freeze it at a named point of a flow. `python flow_sabotage.py POINT[,POINT] run`.

As sabotage.py: the product has no hooks for this, its functions are wrapped here.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from aiormq.channel import Channel

from dlq_handler.database.leadership import Leadership
from dlq_handler.dead_letters import queue_emptier
from dlq_handler.lifecycle import changes, flow_actions
from dlq_handler.lifecycle.flow_actions import FlowActions
from dlq_handler.main import main
from tests.support.sabotage import die, wrap

FROZEN_SECONDS = 3.0
"""How long the server waits for a frozen transaction of `frozen_at_unbind`."""


def a_short_lease() -> None:
    """The other replica leads a few seconds after the death of this one. Kills nothing."""
    defaults = Leadership.__init__.__kwdefaults__ or {}
    defaults["lease_seconds"], defaults["renew_seconds"] = 4.0, 0.5


def after_step() -> None:
    """A step is on record, and was not taken."""
    wrap(FlowActions, "_take", 1, after=True)


def after_bind() -> None:
    """The retired queue is bound; that is not on record."""
    _die_instead("retired_bound")


def after_unbind() -> None:
    """The queues are unbound; that is not on record."""
    _die_instead("unbound")


def after_drain() -> None:
    """A batch of what was left in a queue is committed, and not acknowledged."""
    wrap(queue_emptier, "_settle", 1, after=False)


def after_delete() -> None:
    """The queues are deleted; that is not on record."""
    _die_instead("tried_to_delete")


def after_return() -> None:
    """The queues of a worker that has returned are bound again; that is not on record."""
    _die_instead("aborted")


def frozen_at_unbind() -> None:
    """Frozen when the next thing that it sends is the unbind of a worker's queue. When it goes on, it sends that.

    Its transaction has shorter limits, in the same order.
    """
    flow_actions.BROKER_SECONDS, flow_actions._STATEMENT_TIMEOUT_MS = 1.5, round(FROZEN_SECONDS * 1000)
    _freeze_before("queue_unbind")


def frozen_at_delete() -> None:
    """Frozen when the next thing that it sends is the delete of a worker's queue."""
    _freeze_before("queue_delete")


POINTS = {
    point.__name__: point
    for point in (
        a_short_lease,
        after_step,
        after_bind,
        after_unbind,
        after_drain,
        after_delete,
        after_return,
        frozen_at_unbind,
        frozen_at_delete,
    )
}


def _die_instead(change: str) -> None:
    """Of writing this change: its transaction has changed the broker by then."""

    def dies(*_: object, **__: object) -> NoReturn:
        die()

    setattr(changes, change, dies)


def _freeze_before(method: str) -> None:
    original: Callable[..., Any] = getattr(Channel, method)
    times = iter(range(1))

    def frozen(self: Channel, queue: str, *arguments: Any, **keywords: Any) -> Any:
        if queue.startswith("worker.") and next(times, None) is not None:
            os.kill(os.getpid(), signal.SIGSTOP)
        return original(self, queue, *arguments, **keywords)

    setattr(Channel, method, frozen)


if __name__ == "__main__":
    _, points, *arguments = sys.argv
    for point in points.split(","):
        POINTS[point]()
    sys.argv = ["dlq-handler", *arguments]
    main()
