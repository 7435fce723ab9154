"""The configuration reference says what the models say, and the shipped files can be used."""

from pathlib import Path

import pytest

from dlq_handler.host.names import STOCK_QUEUE
from dlq_handler.settings import load
from dlq_handler.settings.keys import Key, known_keys
from dlq_handler.web.options import LEAST_TOKEN_CHARACTERS
from scripts.settings_reference import PAGE, configuration_page

ROOT = Path(__file__).parents[3]


def test_the_page_is_up_to_date() -> None:
    assert (ROOT / PAGE).read_text(encoding="utf-8") == configuration_page(), (
        "docs/reference/configuration.md is out of date: ./run references"
    )


@pytest.mark.parametrize("key", known_keys().values(), ids=lambda key: key.name)
def test_every_key_is_explained_in_one_line(key: Key) -> None:
    assert key.description.endswith(".")
    assert len(key.description) > 30


def test_the_least_length_of_a_token_is_named() -> None:
    key = known_keys()["dlq_handler", "ui", "tokens"]
    assert f"at least {LEAST_TOKEN_CHARACTERS} characters" in key.description


@pytest.mark.parametrize("name", ["config.development.yaml", "config.docker.yaml"])
def test_a_shipped_file_can_be_used(name: str) -> None:
    loaded = load(ROOT / name, {})

    assert loaded.files == (ROOT / name,)
    assert loaded.warnings == ()
    assert loaded.settings.database.schema_name == "attune"
    assert loaded.settings.worker.heartbeat_interval == 10
    assert not loaded.settings.dlq_handler.worker.reconnects, "Attune's workers never reconnect"
    queue = loaded.settings.dlq_handler.intake.queue
    assert queue != STOCK_QUEUE, "a run with this file alone shares no queue with Attune's executor"
