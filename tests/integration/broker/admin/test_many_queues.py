"""Many queues are asked about at once, and each gets its own answer."""

import pytest

from dlq_handler.broker.admin import queue_probe
from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.queue_probe import QueueCounts
from dlq_handler.broker.client.connection import BrokerAddress
from dlq_handler.errors import Unavailable
from tests.integration.topology.broker_side import declare_queue
from tests.support.tcp_proxy import TcpProxy

NAMES = [f"q{number}" for number in range(240)]


async def test_each_of_many_queues_has_its_answer_and_a_lost_broker_is_unavailable(vhost: str) -> None:
    async with TcpProxy.to(vhost) as proxy, AdminConnection(BrokerAddress(urls=[proxy.url])) as link:
        for name in NAMES[::3]:
            await declare_queue(link, name)
        assert await queue_probe.existing_queues(link, NAMES) == set(NAMES[::3])
        assert await queue_probe.count_all(link, NAMES) == {
            name: QueueCounts(ready=0, consumers=0) if name in NAMES[::3] else None for name in NAMES
        }

        await proxy.refuse()
        with pytest.raises(Unavailable):
            await queue_probe.existing_queues(link, NAMES)


@pytest.mark.parametrize("refusals", [0, 1, 10])
async def test_the_number_of_refusals_is_exact_however_many_ask_at_once(
    link: AdminConnection, refusals: int
) -> None:
    missing = [f"missing{number}" for number in range(900)]
    await declare_queue(link, "there")

    counted, left = await queue_probe.count_until_refused(link, [*missing, "there"], refusals=refusals)

    assert list(counted.values()).count(None) == refusals
    assert len(left) == 901 - len(counted)


async def test_an_exclusive_queue_is_left_out_of_the_counts_and_exists(vhost: str) -> None:
    async with (
        AdminConnection(BrokerAddress(urls=[vhost])) as owner,
        AdminConnection(BrokerAddress(urls=[vhost])) as link,
    ):
        await declare_queue(owner, "open")
        async with owner.channel("declare") as channel:
            await channel.queue_declare("closed", exclusive=True)

        asked = ["closed", "open", "gone"]

        assert set(await queue_probe.count_all(link, asked)) == {"open", "gone"}
        assert await queue_probe.existing_queues(link, asked) == {"open", "closed"}


async def test_ttls_of_many_queues_are_probed(link: AdminConnection) -> None:
    for number, name in enumerate(NAMES[:12]):
        await declare_queue(link, name, x_message_ttl=1000 + number)

    probed = await queue_probe.probe_all_ttl_ms(link, [*NAMES[:12], "gone"])

    # A queue that does not exist is left out: None would say that it has no TTL.
    assert probed == {name: 1000 + number for number, name in enumerate(NAMES[:12])}
