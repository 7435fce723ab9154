"""The canary as a message, in Attune's envelope, and the queue in which it expires."""

import json
from uuid import UUID

from dlq_handler.topology.canary import CanaryPlan, canary_body
from sandbox.attune.messages import read_envelope
from tests.support.builders import NOON

PROBE = UUID("0e3f8f9a-8e2c-4d6f-9b0f-1f2a3b4c5d6e")
BODY = canary_body(PROBE, worker_id=7, queue="attune.dlx.queue", sent_by="one", now=NOON)


def test_a_canary_is_an_envelope_that_attune_can_read_and_no_dispatch() -> None:
    envelope = read_envelope(BODY)

    assert envelope.message_type == "DlqHandlerCanary"
    assert envelope.message_id == str(PROBE)
    assert "execution_id" not in envelope.payload
    assert json.loads(BODY)["headers"]["source_service"] == "dlq-handler"


def test_what_dies_in_its_queue_keeps_its_key() -> None:
    arguments = CanaryPlan(dead_letter_exchange="attune.dlx", ttl_ms=5000).queue_arguments

    assert arguments == {
        "x-dead-letter-exchange": "attune.dlx",
        "x-message-ttl": 5000,
        "x-max-length": 1000,
    }
