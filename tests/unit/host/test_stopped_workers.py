"""When a worker counts as stopped, and when as back."""

import pytest

from dlq_handler.host.worker import AvailabilityPolicy, Worker, WorkerStatus, has_returned, has_stopped

POLICY = AvailabilityPolicy(unavailable_after_seconds=90)


def a_row(age_seconds: float | None, status: str = WorkerStatus.ACTIVE) -> Worker:
    return Worker(id=7, heartbeat_age_seconds=age_seconds, status=status)


@pytest.mark.parametrize(
    ("worker", "link_age_seconds", "stopped"),
    [
        (None, 0, True),
        (a_row(5, WorkerStatus.INACTIVE), 0, True),
        (a_row(91), 3600, True),
        (a_row(91), 89, False),
        (a_row(90), 3600, False),
        (a_row(None), 3600, False),
        (a_row(5, WorkerStatus.ERROR), 3600, False),
    ],
)
def test_worker_has_stopped_without_a_row_by_its_own_word_or_by_its_heartbeat(
    worker: Worker | None, link_age_seconds: float, stopped: bool
) -> None:
    assert has_stopped(worker, link_age_seconds=link_age_seconds, policy=POLICY) is stopped


@pytest.mark.parametrize(
    ("worker", "returned"),
    [
        (None, False),
        (a_row(5), True),
        (a_row(-5), True),
        (a_row(90), True),
        (a_row(91), False),
        (a_row(None), False),
        (a_row(5, WorkerStatus.INACTIVE), False),
    ],
)
def test_worker_has_returned_when_its_row_is_active_with_a_fresh_heartbeat(
    worker: Worker | None, returned: bool
) -> None:
    assert has_returned(worker, policy=POLICY) is returned
    assert not (returned and has_stopped(worker, link_age_seconds=3600, policy=POLICY))
