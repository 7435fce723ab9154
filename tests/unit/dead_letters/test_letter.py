"""The properties of a dead letter that are computed: its size in memory, and whether it is a canary."""

from typing import Any
from uuid import UUID

import pytest

from dlq_handler.topology.canary import CANARY_QUEUE, canary_body
from tests.support.builders import NOON, a_canary, a_dead_letter, a_death, a_raw_letter, an_x_death, read

PROBE = UUID("0e3f8f9a-8e2c-4d6f-9b0f-1f2a3b4c5d6e")
BODY = canary_body(PROBE, worker_id=7, queue="attune.dlx.queue", sent_by="one", now=NOON)
DIED_IN_CANARY_QUEUE = {"x-death": [an_x_death(queue=CANARY_QUEUE)], "x-first-death-queue": CANARY_QUEUE}


@pytest.mark.parametrize("message_id", [str(PROBE), None], ids=["by its property", "by its envelope"])
def test_a_canary_is_recognized_when_it_arrives(message_id: str | None) -> None:
    letter = read(a_raw_letter(BODY, message_id=message_id, headers=DIED_IN_CANARY_QUEUE))

    assert letter.is_canary
    assert letter.parse_error is None
    assert letter.canary_id == PROBE


def test_other_dead_letters_are_no_canaries() -> None:
    assert not a_dead_letter().is_canary
    assert not a_dead_letter(message_type=None, parse_error="body is not JSON").is_canary
    assert not a_canary(message_type="ExecutionRequested").is_canary, "its route alone is no proof"


@pytest.mark.parametrize(
    "forged",
    [
        {"death": None, "first_death_queue": None},
        {"death": a_death(), "first_death_queue": "worker.7.executions"},
        {"first_death_queue": "worker.7.executions"},
        {"death": a_death()},
        {"parse_error": "properties cannot be decoded"},
        {"message_id": "made up"},
        {"message_id": None},
        {"execution_id": 5},
        {"action_ref": "core.echo"},
    ],
    ids=[
        "never died",
        "died in a worker's queue",
        "died in a worker's queue first",
        "died in a worker's queue last",
        "is unreadable",
        "has a made-up id",
        "has no id",
        "names an execution",
        "names an action",
    ],
)
def test_a_dead_letter_without_every_mark_is_no_canary(forged: dict[str, Any]) -> None:
    assert a_canary().is_canary
    assert not a_canary(**forged).is_canary
