"""A look at the connections of workers shares one time limit, and says what was not asked."""

from collections.abc import Collection, Mapping
from typing import Any, cast

from dlq_handler.broker.admin.snapshot import ConsumerFacts
from dlq_handler.host.worker import WorkerQueueNames
from dlq_handler.workers.connection_source import CHECK_SECONDS, CONSUMERS_SECONDS, ConnectionSource
from dlq_handler.workers.worker_process import ConnectionObservation

NAMES = WorkerQueueNames()


class SlowApi:
    """Takes all of its time for the consumers: of worker 1 there is an answer, of 2 none, and 3 is not asked about."""

    def __init__(self) -> None:
        self.clock, self.limits = 100.0, list[float]()

    async def consumers_of(
        self, queues: Collection[str], *, within_seconds: float
    ) -> Mapping[str, tuple[ConsumerFacts, ...] | None]:
        self.limits.append(within_seconds)
        self.clock += within_seconds
        [first, second, _] = queues
        return {first: (ConsumerFacts(queue=first, tag="worker-1", connection="one"),), second: None}

    async def connection_ages(self, names: Collection[str], *, within_seconds: float) -> Mapping[str, float]:
        self.limits.append(within_seconds)
        return dict.fromkeys(names, 7.0)


async def test_whole_look_has_one_time_limit_and_what_was_not_asked_is_left_out() -> None:
    api = SlowApi()
    source = ConnectionSource(
        cast("Any", api), names=NAMES, own_tag_prefix="dlq-handler.", now=lambda: api.clock
    )
    assert await source.ask({1: None, 2: None, 3: None}) == {
        1: ConnectionObservation(names=frozenset({"one"}), age_seconds=7.0),
        2: None,
    }
    assert api.limits == [CONSUMERS_SECONDS, CHECK_SECONDS - CONSUMERS_SECONDS]
    assert source.api_error is None
