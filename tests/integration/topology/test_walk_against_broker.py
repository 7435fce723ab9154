"""The oracle: for a table of topologies, a message that really expires arrives exactly where `walk` said."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

import pytest
from aiormq.abc import FieldValue

from dlq_handler.broker.admin import queue_probe
from dlq_handler.broker.admin.admin_connection import AdminConnection
from dlq_handler.broker.admin.management_api import ManagementApi
from dlq_handler.topology.routing import Answer, walk
from sandbox.servers import RabbitMQ
from tests.support.eventually import eventually

KEY = "execution.dispatch.worker.7"
QUEUE = "worker.7.executions"
INTAKE = "intake"
ELSEWHERE = "elsewhere"


@dataclass(frozen=True)
class Case:
    """One topology behind a worker queue that is bound to a topic exchange with its key."""

    name: str
    arrives: bool
    exchanges: Mapping[str, str] = field(default_factory=lambda: {"dlx": "direct"})
    exchange_arguments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    bindings: tuple[tuple[str, str, str], ...] = ()
    header_bindings: tuple[tuple[str, str, Mapping[str, str]], ...] = ()
    exchange_bindings: tuple[tuple[str, str, str], ...] = ()
    queue_arguments: Mapping[str, str | int] = field(
        default_factory=lambda: {"x-dead-letter-exchange": "dlx"}
    )
    queue_policy: Mapping[str, str | int] = field(default_factory=dict)
    exchange_policy: Mapping[str, str] = field(default_factory=dict)
    key: str = KEY


AE = {"dlx": "direct", "ae": "fanout"}
TWO = {"dlx": "direct", "second": "topic"}
TO_DLX = {"x-dead-letter-exchange": "dlx"}

CASES = [
    Case("direct bound with a literal '#'", False, bindings=(("dlx", "#", INTAKE),)),
    Case("direct bound with the exact key", True, bindings=(("dlx", KEY, INTAKE),)),
    Case("direct bound with another worker's key", False, bindings=(("dlx", KEY + "1", INTAKE),)),
    Case("direct bound for another queue", False, bindings=(("dlx", KEY, ELSEWHERE),)),
    Case("topic bound with '#'", True, {"dlx": "topic"}, bindings=(("dlx", "#", INTAKE),)),
    Case("topic bound with stars", True, {"dlx": "topic"}, bindings=(("dlx", "*.dispatch.*.7", INTAKE),)),
    Case("topic bound with too few stars", False, {"dlx": "topic"}, bindings=(("dlx", "*.*.*", INTAKE),)),
    Case("topic, '#' inside", True, {"dlx": "topic"}, bindings=(("dlx", "execution.#.worker.#.7", INTAKE),)),
    Case("topic bound with the exact key", True, {"dlx": "topic"}, bindings=(("dlx", KEY, INTAKE),)),
    Case(
        "topic, key with an empty word", True, {"dlx": "topic"}, bindings=(("dlx", "a.*", INTAKE),), key="a."
    ),
    Case("fanout", True, {"dlx": "fanout"}, bindings=(("dlx", "whatever", INTAKE),)),
    Case("fanout without bindings", False, {"dlx": "fanout"}),
    Case("headers, no arguments", True, {"dlx": "headers"}, header_bindings=(("dlx", INTAKE, {}),)),
    Case(
        "headers, any of none",
        False,
        {"dlx": "headers"},
        header_bindings=(("dlx", INTAKE, {"x-match": "any"}),),
    ),
    Case(
        "headers, only x- arguments are not looked at",
        True,
        {"dlx": "headers"},
        header_bindings=(("dlx", INTAKE, {"x-match": "all", "x-first-death-queue": "nonsense"}),),
    ),
    Case("missing dead-letter exchange", False, {"other": "direct"}, bindings=(("other", KEY, INTAKE),)),
    Case("no dead-letter exchange", False, bindings=(("dlx", KEY, INTAKE),), queue_arguments={}),
    Case(
        "alternate exchange by argument",
        True,
        AE,
        exchange_arguments={"dlx": {"alternate-exchange": "ae"}},
        bindings=(("dlx", "#", INTAKE), ("ae", "", INTAKE)),
    ),
    Case(
        "alternate exchange by policy",
        True,
        AE,
        exchange_policy={"alternate-exchange": "ae"},
        bindings=(("dlx", "#", ELSEWHERE), ("ae", "", INTAKE)),
    ),
    Case(
        "alternate exchange is not taken when a binding matches",
        False,
        AE,
        exchange_arguments={"dlx": {"alternate-exchange": "ae"}},
        bindings=(("dlx", KEY, ELSEWHERE), ("ae", "", INTAKE)),
    ),
    Case(
        "alternate exchange that does not exist",
        False,
        exchange_arguments={"dlx": {"alternate-exchange": "no"}},
    ),
    Case(
        "argument's alternate wins over the policy's",
        False,
        AE,
        exchange_arguments={"dlx": {"alternate-exchange": "no"}},
        exchange_policy={"alternate-exchange": "ae"},
        bindings=(("ae", "", INTAKE),),
    ),
    Case(
        "exchange to exchange",
        True,
        TWO,
        exchange_bindings=(("dlx", KEY, "second"),),
        bindings=(("second", "execution.#", INTAKE),),
    ),
    Case(
        "exchange to exchange that leads nowhere takes no alternate",
        False,
        {**TWO, "ae": "fanout"},
        exchange_arguments={"dlx": {"alternate-exchange": "ae"}},
        exchange_bindings=(("dlx", KEY, "second"),),
        bindings=(("second", "another", INTAKE), ("ae", "", INTAKE)),
    ),
    Case(
        "a ring of exchanges",
        True,
        {"dlx": "topic", "second": "topic"},
        exchange_bindings=(("dlx", "#", "second"), ("second", "#", "dlx")),
        bindings=(("second", KEY, INTAKE),),
    ),
    Case(
        "dead-letter routing key by argument",
        True,
        bindings=(("dlx", "#", INTAKE),),
        queue_arguments={**TO_DLX, "x-dead-letter-routing-key": "#"},
    ),
    Case(
        "dead-letter routing key by policy",
        True,
        bindings=(("dlx", "#", INTAKE),),
        queue_policy={"dead-letter-routing-key": "#"},
    ),
    Case(
        "the argument's routing key wins over the policy's",
        False,
        bindings=(("dlx", "#", INTAKE),),
        queue_arguments={**TO_DLX, "x-dead-letter-routing-key": "lost"},
        queue_policy={"dead-letter-routing-key": "#"},
    ),
    Case(
        "dead-letter exchange by policy",
        True,
        bindings=(("dlx", KEY, INTAKE),),
        queue_arguments={},
        queue_policy={"dead-letter-exchange": "dlx"},
    ),
    Case(
        "the argument's exchange wins over the policy's",
        False,
        {"dlx": "direct", "other": "fanout"},
        bindings=(("other", "", INTAKE),),
        queue_policy={"dead-letter-exchange": "other"},
    ),
    Case(
        "the default exchange with the intake queue's name",
        True,
        queue_arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": INTAKE},
    ),
    Case(
        "the default exchange with the message's own key",
        False,
        queue_arguments={"x-dead-letter-exchange": ""},
    ),
    Case(
        "a quorum queue",
        True,
        bindings=(("dlx", KEY, INTAKE),),
        queue_arguments={**TO_DLX, "x-queue-type": "quorum"},
    ),
]


async def build(link: AdminConnection, rabbitmq: RabbitMQ, vhost_name: str, case: Case) -> None:
    async with link.channel("build a topology") as channel:
        for name, kind in case.exchanges.items():
            arguments: dict[str, FieldValue] = {**case.exchange_arguments.get(name, {})}
            await channel.exchange_declare(name, exchange_type=kind, durable=True, arguments=arguments)
        for queue in (INTAKE, ELSEWHERE):
            await channel.queue_declare(queue, durable=True)
        for exchange, key, queue in case.bindings:
            await channel.queue_bind(queue, exchange, key)
        for exchange, queue, wanted in case.header_bindings:
            await channel.queue_bind(queue, exchange, "", arguments=dict(wanted))
        for source, key, destination in case.exchange_bindings:
            await channel.exchange_bind(destination=destination, source=source, routing_key=key)
        await channel.exchange_declare("attune.executions", exchange_type="topic", durable=True)
        await channel.queue_declare(
            QUEUE, durable=True, arguments={"x-message-ttl": 20, **case.queue_arguments}
        )
        await channel.queue_bind(QUEUE, "attune.executions", case.key)
    for applies_to, pattern, definition in (
        ("queues", f"^{QUEUE}$", case.queue_policy),
        ("exchanges", "^dlx$", case.exchange_policy),
    ):
        if definition:
            await rabbitmq.ask(
                "PUT",
                f"policies/{quote(vhost_name, safe='')}/{applies_to}",
                {"pattern": pattern, "definition": dict(definition), "apply-to": applies_to},
            )


async def let_one_expire(link: AdminConnection, key: str) -> None:
    async with link.channel("publish") as channel:
        await channel.basic_publish(b"{}", exchange="attune.executions", routing_key=key)
        # On the same channel: when this is answered, the message has reached the queue.
        await channel.queue_declare(QUEUE, passive=True)

    async def is_gone() -> bool:
        counts = await queue_probe.count_queue(link, QUEUE)
        return counts is not None and counts.ready == 0

    await eventually(is_gone)


async def queues_with_letters(link: AdminConnection) -> set[str]:
    counts = {queue: await queue_probe.count_queue(link, queue) for queue in (INTAKE, ELSEWHERE)}
    return {queue for queue, count in counts.items() if count is not None and count.ready}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_what_dies_arrives_exactly_where_the_walk_said(
    case: Case, link: AdminConnection, rabbitmq: RabbitMQ, api: ManagementApi, vhost_name: str
) -> None:
    await build(link, rabbitmq, vhost_name, case)
    snapshot = await api.snapshot()
    said = {queue for queue in (INTAKE, ELSEWHERE) if walk(snapshot, QUEUE, queue).answer is Answer.ARRIVES}
    answer = walk(snapshot, QUEUE, INTAKE)

    await let_one_expire(link, case.key)

    async def is_as_said() -> bool:
        seen = await queues_with_letters(link)
        assert seen == said, answer.sentence
        return True

    await eventually(is_as_said, timeout=5)
    assert answer.answer is (Answer.ARRIVES if case.arrives else Answer.BROKEN_ROUTE), answer.sentence


async def test_behind_an_exchange_that_reads_headers_the_answer_is_unknown(
    link: AdminConnection, rabbitmq: RabbitMQ, api: ManagementApi, vhost_name: str
) -> None:
    case = Case("", False, {"dlx": "headers"}, header_bindings=(("dlx", INTAKE, {"kind": "a"}),))
    await build(link, rabbitmq, vhost_name, case)

    walked = walk(await api.snapshot(), QUEUE, INTAKE)

    assert walked.answer is Answer.UNKNOWN
    assert "headers of each message" in walked.sentence
