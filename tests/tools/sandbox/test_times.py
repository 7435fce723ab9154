"""The sandbox's times: stock are the sidecar's defaults, scaled is a set that it accepts without a warning."""

from pathlib import Path

import pytest

from dlq_handler.settings.loader import Loaded, load
from dlq_handler.settings.model import Settings
from sandbox.times import (
    SCALED,
    STOCK,
    Times,
    describe,
    describe_briefly,
    sidecar_environment,
)


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # without a config.yaml


def loaded(times: Times) -> Loaded:
    return load(None, sidecar_environment(times))


@pytest.mark.usefixtures("nowhere")
def test_stock_times_are_the_defaults_of_the_sidecar() -> None:
    stock, default = loaded(STOCK).settings, Settings()
    assert stock.worker_unavailable_after_seconds == default.worker_unavailable_after_seconds
    stock_values = stock.model_dump()
    stock_values["dlq_handler"]["worker"]["unavailable_after_seconds"] = None
    assert stock_values == default.model_dump()


@pytest.mark.usefixtures("nowhere")
def test_scaled_times_are_valid_settings_without_warnings() -> None:
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


def test_each_time_is_one_line() -> None:
    assert len(describe(SCALED)) == len(Times.__slots__) + 1
    assert describe_briefly(SCALED)[:-1] == describe(SCALED)[: len(describe_briefly(SCALED)) - 1]


def test_times_have_two_names() -> None:
    assert Times.named("scaled") is SCALED
    assert Times.named("stock") is STOCK
    with pytest.raises(ValueError, match="known are scaled and stock"):
        Times.named("fast")
