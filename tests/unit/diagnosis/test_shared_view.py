"""A view that was shared gives the same diagnoses as before, whatever is unknown in it and however large it is."""

import asyncio
from datetime import datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dlq_handler.diagnosis.checks import Check
from dlq_handler.diagnosis.diagnose import diagnose
from dlq_handler.diagnosis.shared_view import Observation, decode, encode
from dlq_handler.diagnosis.view import OFF, BrokerFact, DatabaseFact, Unknown, UnknownCause, View
from dlq_handler.host.worker import QueueObservation
from dlq_handler.topology.check import check
from dlq_handler.workers.service_observation import ServiceObservation
from tests.support.topologies import a_stock_world, expectation
from tests.support.views import NOW, a_view, a_worker, ago, facts

BEGINNINGS = {Check.BROKER: ago(60)}


def shared(view: View) -> tuple[View, dict[Check, datetime], int]:
    async def there_and_back() -> tuple[Observation | None, int]:
        parts = await encode(Observation(view=view, beginnings=BEGINNINGS))
        return await decode(parts), len(parts)

    found, count = asyncio.run(there_and_back())
    assert found is not None
    return found.view, dict(found.beginnings), count


@given(
    st.sets(st.sampled_from(sorted(facts()))),
    st.sampled_from(UnknownCause),
    st.sets(st.sampled_from(["canaries", "intake", "leader"])),
)
def test_what_is_unknown_or_off_stays_so(unknown: set[str], cause: UnknownCause, off: set[str]) -> None:
    changed: dict[str, Any] = dict.fromkeys(off, OFF) | dict.fromkeys(unknown, Unknown("so it is", cause))
    view = a_view(**changed)
    found, beginnings, _ = shared(view)

    assert diagnose(found) == diagnose(view)
    assert all(getattr(found, name) == Unknown("so it is", cause) for name in unknown)
    assert (found.at, beginnings) == (NOW, BEGINNINGS)


def test_problems_of_every_kind_stay_the_same() -> None:
    look = ServiceObservation(queue="worker.1.executions", unconsumed_since=ago(60), first_heartbeat=ago(35))
    workers = [
        a_worker(number=1, queue=QueueObservation(consumers=0, ready=0), observation=look),
        a_worker(number=2, queue=None, silent_seconds=1920, scheduled=3),
        a_worker(number=3, queue=Unknown("not allowed"), status="inactive", updated=ago(5)),
    ]
    view = a_view(
        workers=workers,
        database=DatabaseFact(is_in_recovery=True),
        broker=BrokerFact(error="refused"),
        topology=facts()["topology"].__class__(checked=check(a_stock_world(), expectation())),
    )
    assert diagnose(shared(view)[0]) == diagnose(view)


def test_a_large_fleet_is_in_several_parts_and_in_its_order() -> None:
    workers = [a_worker(number=number) for number in range(1, 1001)]
    found, _, count = shared(a_view(workers=workers))

    assert not isinstance(found.workers, Unknown)
    assert [one.registered.worker.id for one in found.workers] == list(range(1, 1001))
    assert count >= 6


def test_the_text_of_another_version_is_not_read() -> None:
    assert asyncio.run(decode(['{"view": {"moon": 1}}'])) is None
