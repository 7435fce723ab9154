"""The printed RabbitMQ permissions allow what the sidecar does, and no more."""

import re
from uuid import UUID

import pytest

from dlq_handler.broker.outgoing import PUBLISH_CHECK_PREFIX
from dlq_handler.topology.blueprint import Blueprint, ShadowLimits, broker_permissions

OWN = broker_permissions(Blueprint(intake_queue="attune.dlx.sidecar.queue"))
STOCK = broker_permissions(Blueprint())
# Always the same one: it is part of the names of tests, which every process that runs them must agree on.
CHECKED = f"{PUBLISH_CHECK_PREFIX}{UUID(int=7)}"


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        (STOCK.read, "attune.dlx.queue"),
        (STOCK.read, "attune.dlx"),
        (STOCK.write, "attune.dlx.queue"),
        (STOCK.write, "attune.executions"),
        (STOCK.configure, "worker.17.executions"),
        *((pattern, CHECKED) for pattern in (STOCK.configure, STOCK.write, STOCK.read)),
        (OWN.configure, "attune.dlx.sidecar.queue"),
        (OWN.write, "attune.dlx.sidecar.queue"),
        (OWN.read, "attune.dlx.sidecar.queue"),
    ],
)
def test_what_the_sidecar_does_is_allowed(pattern: str, name: str) -> None:
    assert re.search(pattern, name)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        (STOCK.read, "attune.executions"),
        (STOCK.read, "worker.17.executions"),
        (OWN.read, "attune.dlx.queue"),
        (STOCK.write, "worker.17.executions"),
        (STOCK.write, "attune.events"),
        (STOCK.configure, "attune.execution.requests.queue"),
        (STOCK.configure, "attuneXdlx"),
    ],
)
def test_what_it_never_does_is_not(pattern: str, name: str) -> None:
    assert not re.search(pattern, name)


def test_the_rights_are_the_same_with_shadow_mode_on_and_off() -> None:
    """`set_permissions` replaces: rights for one mode only would refuse the change to the other."""
    live, shadow = "attune.dlx.sidecar.queue", "attune.dlx.shadow.queue"
    limits = ShadowLimits(max_letters=10, ttl_ms=10)
    on = broker_permissions(Blueprint(intake_queue=shadow, shadow=limits), intake_queues=(live, shadow))
    off = broker_permissions(Blueprint(intake_queue=live), intake_queues=(live, shadow))

    for name in (live, shadow):
        for rights in (on, off):
            assert all(re.search(one, name) for one in (rights.configure, rights.write, rights.read))
    for rights in (on, off):
        # The stock queue is declared if it is missing, its worker keys are unbound, and it is never consumed.
        assert re.search(rights.configure, "attune.dlx.queue")
        assert re.search(rights.write, "attune.dlx.queue")
        assert not re.search(rights.read, "attune.dlx.queue")


def test_without_intake_no_other_queue_is_granted() -> None:
    rights = broker_permissions(Blueprint(has_intake=False), intake_queues=("attune.dlx.shadow.queue",))

    assert not re.search(rights.configure, "attune.dlx.shadow.queue")
    assert not re.search(rights.read, "attune.dlx.shadow.queue")


def test_worker_queues_may_be_read_only_for_draining() -> None:
    draining = broker_permissions(Blueprint(), drains=True)

    assert re.search(draining.read, "worker.17.executions")
    assert not re.search(draining.read, "worker.17.cancel")
    assert (draining.configure, draining.write) == (STOCK.configure, STOCK.write)


@pytest.mark.parametrize("name", ["dlq_handler.canary", "dlq_handler.canary.queue"])
def test_the_canary_needs_every_right_on_what_is_its_own_and_may_write_where_it_dies_into(name: str) -> None:
    probing = broker_permissions(Blueprint(), sends_canaries=True)

    for pattern in (probing.configure, probing.write, probing.read):
        assert re.search(pattern, name)
    assert re.search(probing.write, "attune.dlx")
    assert not any(re.search(pattern, name) for pattern in (STOCK.configure, STOCK.write, STOCK.read))
    assert not re.search(STOCK.write, "attune.dlx")
