"""The sandbox's times: stock is what the sidecar has by itself, scaled is a set that it accepts without a word."""

from pathlib import Path

import pytest

from dlq_handler.settings.loader import Loaded, load
from dlq_handler.settings.model import Settings
from sandbox import times
from sandbox.times import (
    SCALED,
    STOCK,
    Times,
    describe,
    describe_briefly,
    sidecar_environment,
)

ROOT = Path(__file__).parents[3]


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # without a config.yaml


def loaded(times: Times) -> Loaded:
    return load(None, sidecar_environment(times))


@pytest.mark.usefixtures("nowhere")
def test_stock_times_are_the_defaults_of_the_sidecar() -> None:
    stock, default = loaded(STOCK).settings, Settings()
    assert stock.worker_unavailable_after_seconds == default.worker_unavailable_after_seconds
    told = stock.model_dump()
    told["dlq_handler"]["worker"]["unavailable_after_seconds"] = None
    assert told == default.model_dump()


@pytest.mark.usefixtures("nowhere")
def test_scaled_times_contradict_nothing_and_surprise_nobody() -> None:
    scaled = loaded(SCALED)  # raises what is contradictory
    assert scaled.warnings == ()
    settings = scaled.settings
    assert settings.deadline_seconds == 8
    assert settings.worker_unavailable_after_seconds == 5


def test_every_time_is_shorter_when_scaled() -> None:
    longer = {
        name for name in Times.__slots__ if name != "name" and getattr(SCALED, name) >= getattr(STOCK, name)
    }
    assert longer == set()


def test_times_are_told_in_one_line_each() -> None:
    lines = describe(SCALED)
    assert lines[0] == "times: scaled"
    assert "    1 s  between two heartbeats of a worker" in lines
    assert "    3 s  without a heartbeat, then a worker is late" in lines
    assert "    5 s  until a message dies in a worker's queue" in lines
    assert len(lines) == len(Times.__slots__) + 1
    *first, pointer = describe_briefly(SCALED)
    assert first == lines[: len(first)]
    assert "    8 s  until an execution that is still scheduled is stale" in first
    assert Path(pointer.split()[-1]) == Path(times.__file__).relative_to(ROOT)


def test_times_have_two_names() -> None:
    assert Times.named("scaled") is SCALED
    assert Times.named("stock") is STOCK
    with pytest.raises(ValueError, match="known are scaled and stock"):
        Times.named("fast")
