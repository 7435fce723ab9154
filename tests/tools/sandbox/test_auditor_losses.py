"""A completion event may be repeated only by whom a loss kept from knowing that it was announced."""

import pytest

from sandbox.auditor.outages import Outages
from sandbox.stage.parts import WORKERS

MARGIN, LOST, BACK = 4.0, 100.0, 110.0


@pytest.mark.parametrize(
    ("first_at", "again_at", "is_lawful"),
    [
        (99.9, 112.0, True),  # died between confirm and mark
        (96.0, 112.0, True),  # published, and its confirm was still awaited
        (111.0, 111.1, True),  # the broker kept the first copy and gave us both when it was back
        (99.9, 900.0, True),  # adopted late
        (95.9, 112.0, False),  # published and marked long before: a fault publishes everything again
        (98.0, 98.1, False),  # twice at once, before anything was lost
        (114.1, 114.2, False),  # twice at once, when all is well again
    ],
)
def test_a_repeat_is_lawful_only_around_a_loss(first_at: float, again_at: float, is_lawful: bool) -> None:
    losses = Outages(MARGIN)
    losses.lost("broker", LOST)
    losses.back("broker", BACK)
    assert losses.excuse(first_at=first_at, again_at=again_at) is is_lawful


def test_each_loss_has_its_own_end() -> None:
    losses = Outages(MARGIN)
    losses.lost("sidecar", LOST)
    losses.back("sidecar", BACK)
    losses.lost("database", 200)
    assert losses.excuse(first_at=300, again_at=300)
    assert not losses.excuse(first_at=150, again_at=150)
    losses.back("sidecar", 250)
    assert losses.excuse(first_at=300, again_at=300)
    losses.back("database", 250)
    assert not losses.excuse(first_at=300, again_at=300)


@pytest.mark.parametrize("part", ["api", "executor", *WORKERS])
def test_a_loss_of_anybody_else_excuses_nothing(part: str) -> None:
    losses = Outages(MARGIN)
    losses.lost(part, LOST)
    assert not losses.excuse(first_at=LOST, again_at=LOST)


def test_a_first_start_excuses_nothing() -> None:
    losses = Outages(MARGIN)
    losses.back("sidecar", BACK)
    assert not losses.excuse(first_at=BACK, again_at=BACK)
