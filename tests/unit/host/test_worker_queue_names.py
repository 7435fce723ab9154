"""The worker's id in a queue name. A sender can write any name into a header, so any number is possible."""

import pytest

from dlq_handler.host.worker import WorkerQueueNames

NAMES = WorkerQueueNames()


@pytest.mark.parametrize("number", [0, 7, 2**31, 2**63 - 1])
def test_every_id_that_a_bigint_holds_is_read(number: int) -> None:
    assert NAMES.owner_of(NAMES.queue(number)) == number
    assert NAMES.owner_of_key(NAMES.routing_key(number)) == number


@pytest.mark.parametrize(
    "number", [str(2**63), "9" * 19, "9" * 20, "9" * 10_000, "", "٣", "1e3", "+1", "0x1", " 1"]
)
def test_any_other_number_names_no_worker(number: str) -> None:
    assert NAMES.owner_of(f"worker.{number}.executions") is None
    assert NAMES.owner_of_key(f"execution.dispatch.worker.{number}") is None
