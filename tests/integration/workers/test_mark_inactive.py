"""Only a worker that is gone for certain is set to inactive, by the leader, and only if it has not moved since."""

import pytest

from dlq_handler.errors import GateClosed
from dlq_handler.services.inactive_marker import InactiveMarker
from dlq_handler.services.leadership import LeaseLost
from tests.integration.workers.conftest import Fleet, Watchpost


@pytest.fixture
def marker(post: Watchpost) -> InactiveMarker:
    return InactiveMarker(post.database, post.watch, post.leadership, post.gate)


async def test_gone_worker_is_marked_and_others_are_not(
    post: Watchpost, fleet: Fleet, marker: InactiveMarker
) -> None:
    gone = await fleet.worker("gone", heartbeat_age_seconds=600)
    late = await fleet.worker("late", heartbeat_age_seconds=60)
    live = await fleet.worker("live")
    await post.confirm_absences()

    await marker.tick()

    assert [await post.status(one.id) for one in (gone, late, live)] == ["inactive", "active", "active"]


async def test_worker_that_reported_since_the_look_is_left_alone(
    post: Watchpost, fleet: Fleet, marker: InactiveMarker
) -> None:
    back = await fleet.worker("back", heartbeat_age_seconds=600)
    await post.confirm_absences()
    await back.heartbeat(age_seconds=200)

    await marker.tick()

    assert await post.status(back.id) == "active"


async def test_one_look_is_not_enough(post: Watchpost, fleet: Fleet, marker: InactiveMarker) -> None:
    gone = await fleet.worker("gone", heartbeat_age_seconds=600)
    await post.watch.tick()

    await marker.tick()

    assert await post.status(gone.id) == "active"


@pytest.mark.parametrize("status", ["inactive", "error", "busy"])
async def test_only_an_active_worker_is_marked(
    status: str, post: Watchpost, fleet: Fleet, marker: InactiveMarker
) -> None:
    gone = await fleet.worker("gone", heartbeat_age_seconds=600)
    await post.sql("UPDATE worker SET status = CAST(:status AS worker_status)", status=status)
    await post.confirm_absences()

    await marker.tick()

    assert await post.status(gone.id) == status


async def test_replica_whose_lease_was_taken_marks_nothing(
    post: Watchpost, fleet: Fleet, marker: InactiveMarker
) -> None:
    gone = await fleet.worker("gone", heartbeat_age_seconds=600)
    await post.confirm_absences()
    await post.sql("UPDATE own.lease SET holder = 'somebody else'")
    assert post.leadership.is_leader, "it does not know yet"

    with pytest.raises(LeaseLost):
        await marker.tick()
    assert await post.status(gone.id) == "active"

    await marker.tick()
    assert await post.status(gone.id) == "active"


async def test_nothing_is_marked_behind_a_closed_gate(
    post: Watchpost, fleet: Fleet, marker: InactiveMarker, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = await fleet.worker("gone", heartbeat_age_seconds=600)
    await post.confirm_absences()

    def closed() -> None:
        raise GateClosed("the database is a standby")

    monkeypatch.setattr(post.gate, "check", closed)
    with pytest.raises(GateClosed):
        await marker.tick()

    assert await post.status(gone.id) == "active"


async def test_locked_row_keeps_no_other_from_being_marked(
    post: Watchpost, fleet: Fleet, marker: InactiveMarker
) -> None:
    first = await fleet.worker("first", heartbeat_age_seconds=600)
    second = await fleet.worker("second", heartbeat_age_seconds=600)
    await post.confirm_absences()

    async with fleet.executor.database.transaction() as session:
        await session.execute("SELECT FROM worker WHERE id = $1 FOR UPDATE", first.id)
        await marker.tick()
    assert [await post.status(one.id) for one in (first, second)] == ["active", "inactive"]

    await marker.tick()
    assert await post.status(first.id) == "inactive"
