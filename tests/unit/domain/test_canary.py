"""The canary as a message: in Attune's envelope, known by its type and by where it died, no letter of anybody's."""

import json
from typing import Any
from uuid import UUID

import pytest

from dlq_handler.domain.canary import CANARY_QUEUE, CanaryPlan, canary_body, is_canary, probe_id_of
from dlq_handler.sandbox.attune.messages import read_envelope
from tests.support.builders import NOON, a_canary, a_dead_letter, a_death, a_raw_letter, an_x_death, read

PROBE = UUID("0e3f8f9a-8e2c-4d6f-9b0f-1f2a3b4c5d6e")
BODY = canary_body(PROBE, worker_id=7, queue="attune.dlx.queue", sent_by="one", now=NOON)
DIED_IN_OURS = {"x-death": [an_x_death(queue=CANARY_QUEUE)], "x-first-death-queue": CANARY_QUEUE}


def test_a_canary_is_an_envelope_that_attune_can_read_and_no_dispatch() -> None:
    envelope = read_envelope(BODY)

    assert envelope.message_type == "DlqHandlerCanary"
    assert envelope.message_id == str(PROBE)
    assert "execution_id" not in envelope.payload
    assert json.loads(BODY)["headers"]["source_service"] == "dlq-handler"


@pytest.mark.parametrize("message_id", [str(PROBE), None], ids=["by its property", "by its envelope"])
def test_a_canary_is_known_when_it_arrives(message_id: str | None) -> None:
    letter = read(a_raw_letter(BODY, message_id=message_id, headers=DIED_IN_OURS))

    assert is_canary(letter)
    assert letter.flaw is None
    assert probe_id_of(letter) == PROBE


def test_a_letter_is_no_canary() -> None:
    assert not is_canary(a_dead_letter())
    assert not is_canary(a_dead_letter(message_type=None, flaw="body is not JSON"))
    assert not is_canary(a_canary(message_type="ExecutionRequested")), "not for the way it took alone"


@pytest.mark.parametrize(
    "forged",
    [
        {"death": None, "first_death_queue": None},
        {"death": a_death(), "first_death_queue": "worker.7.executions"},
        {"first_death_queue": "worker.7.executions"},
        {"death": a_death()},
        {"flaw": "properties cannot be decoded"},
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
def test_what_only_calls_itself_a_canary_is_a_letter(forged: dict[str, Any]) -> None:
    assert is_canary(a_canary())
    assert not is_canary(a_canary(**forged))


def test_a_canary_that_somebody_made_up_has_no_number() -> None:
    assert probe_id_of(a_canary(message_id="7")) is None
    assert probe_id_of(a_canary(message_id=None)) is None


def test_what_dies_in_its_queue_keeps_its_key() -> None:
    arguments = CanaryPlan(dead_letter_exchange="attune.dlx", ttl_ms=5000).queue_arguments

    assert arguments == {
        "x-dead-letter-exchange": "attune.dlx",
        "x-message-ttl": 5000,
        "x-max-length": 1000,
    }
