"""The resolver on snapshots. That it agrees with a real broker is shown in tests/integration/topology."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_handler.broker.admin.snapshot import BindingFacts, ExchangeFacts, QueueFacts, Snapshot
from dlq_handler.host.names import STOCK_QUEUE
from dlq_handler.topology.routing import Answer, QueueStep, route, topic_matches, walk
from tests.support.topologies import DLX, a_stock_world, a_worker_queue, bound, dispatch_key

WORKER_QUEUE = "worker.7.executions"


TO_DLX = {"x-dead-letter-exchange": DLX}
BOUND = bound(DLX, STOCK_QUEUE, dispatch_key())
TO_ELSE = a_stock_world(bindings=[bound(DLX, "else", dispatch_key())], queues=[QueueFacts(name="else")])
HASHING = ExchangeFacts(name=DLX, type="x-consistent-hash")
ONLY_BY_ALTERNATE = Snapshot(
    exchanges=[
        ExchangeFacts(name="attune.events", type="topic"),
        ExchangeFacts(name="attune.executions", type="topic"),
        ExchangeFacts(name=DLX, type="topic", policy={"alternate-exchange": "attune.events"}),
    ],
    queues=[a_worker_queue(), QueueFacts(name=STOCK_QUEUE)],
    bindings=[bound("attune.executions", WORKER_QUEUE, "a.*"), bound("attune.events", STOCK_QUEUE, "#")],
)
FED_BY_ITS_NAME = Snapshot(
    exchanges=[ExchangeFacts(name=DLX)],
    queues=[a_worker_queue(), QueueFacts(name=STOCK_QUEUE)],
    bindings=[bound("", WORKER_QUEUE, WORKER_QUEUE), bound(DLX, STOCK_QUEUE, WORKER_QUEUE)],
)


def test_the_path_of_dead_letters_is_shown() -> None:
    walked = walk(a_stock_world(bindings=[BOUND]), WORKER_QUEUE, STOCK_QUEUE)

    assert walked.answer is Answer.ARRIVES
    assert tuple(map(str, walked.path)) == (
        "queue 'worker.7.executions'",
        "direct exchange 'attune.dlx' with key 'execution.dispatch.worker.7'",
        "queue 'attune.dlx.queue'",
    )


@pytest.mark.parametrize(
    ("world", "intake", "answer", "sentence"),
    [
        (a_stock_world(), STOCK_QUEUE, Answer.BROKEN_ROUTE, f"for key '{dispatch_key()}' and drops it"),
        (TO_ELSE, STOCK_QUEUE, Answer.BROKEN_ROUTE, "brings it to 'else' instead"),
        (
            a_stock_world(queues=[a_worker_queue(arguments={})], bindings=[BOUND]),
            STOCK_QUEUE,
            Answer.BROKEN_ROUTE,
            "no dead-letter exchange",
        ),
        (
            a_stock_world(queues=[a_worker_queue(type="stream")], bindings=[BOUND]),
            STOCK_QUEUE,
            Answer.BROKEN_ROUTE,
            "a stream dead-letters nothing",
        ),
        (
            a_stock_world(queues=[a_worker_queue(arguments={"x-dead-letter-exchange": "none"})]),
            STOCK_QUEUE,
            Answer.BROKEN_ROUTE,
            "'none' does not exist",
        ),
        (a_stock_world(), "mine", Answer.BROKEN_ROUTE, "intake queue 'mine' does not exist"),
        (a_stock_world(workers=[8]), STOCK_QUEUE, Answer.NO_QUEUE, "no such queue"),
        (
            a_stock_world(bindings=[BOUND, bound("attune.executions", WORKER_QUEUE, "execution.urgent.7")]),
            STOCK_QUEUE,
            Answer.BROKEN_ROUTE,
            "execution.urgent.7",
        ),
        (FED_BY_ITS_NAME, STOCK_QUEUE, Answer.ARRIVES, ""),
        (ONLY_BY_ALTERNATE, STOCK_QUEUE, Answer.UNKNOWN, "only by an alternate exchange"),
        (
            a_stock_world(queues=[a_worker_queue(arguments={}, policy_is_known=False)]),
            STOCK_QUEUE,
            Answer.UNKNOWN,
            "a policy may set one",
        ),
        (
            a_stock_world(dlx=ExchangeFacts(name=DLX, policy_is_known=False)),
            STOCK_QUEUE,
            Answer.UNKNOWN,
            "cannot be read",
        ),
        (a_stock_world(dlx=HASHING), STOCK_QUEUE, Answer.UNKNOWN, "by rules of its plugin"),
        (a_stock_world(dlx=HASHING, queues=[QueueFacts(name="mine")]), "mine", Answer.BROKEN_ROUTE, ""),
        (a_stock_world(is_complete=False), STOCK_QUEUE, Answer.UNKNOWN, "bindings and policies"),
        (Snapshot(queues=[a_worker_queue()], is_complete=False), STOCK_QUEUE, Answer.BROKEN_ROUTE, ""),
        # Without an intake queue the question is whether dead letters arrive in any queue.
        (a_stock_world(), None, Answer.BROKEN_ROUTE, ""),
        (TO_ELSE, None, Answer.ARRIVES, ""),
    ],
)
def test_answer_for_a_worker_queue(
    world: Snapshot, intake: str | None, answer: Answer, sentence: str
) -> None:
    walked = walk(world, WORKER_QUEUE, intake)

    assert walked.answer is answer
    assert sentence in walked.sentence


def test_a_queue_bound_with_a_pattern_is_a_broken_route_behind_a_direct_exchange() -> None:
    walked = walk(
        a_stock_world(bindings=[bound(DLX, STOCK_QUEUE, "event.created")]), "attune.events.queue", STOCK_QUEUE
    )

    assert walked.answer is Answer.BROKEN_ROUTE
    assert "any key that matches '#', which cannot be listed" in walked.sentence


@pytest.mark.parametrize(
    ("pattern", "binding", "answer"),
    [
        ("#", "#", Answer.ARRIVES),
        ("enforcement.#", "enforcement.#", Answer.ARRIVES),
        ("enforcement.#", "#.#", Answer.ARRIVES),
        ("enforcement.#", "enforcement.*", Answer.BROKEN_ROUTE),
        ("enforcement.*", "enforcement.*", Answer.ARRIVES),
        ("enforcement.*", "*.created", Answer.BROKEN_ROUTE),
        ("#", "*.#", Answer.BROKEN_ROUTE),
        ("a.#.b", "a.#", Answer.ARRIVES),
        ("a.#.b", "a.*.#", Answer.ARRIVES),
        ("a.#.b", "a.*.*.#", Answer.BROKEN_ROUTE),
        ("*", "anything", Answer.BROKEN_ROUTE),
    ],
)
def test_behind_a_topic_exchange_a_pattern_arrives_only_when_it_is_covered(
    pattern: str, binding: str, answer: Answer
) -> None:
    world = a_stock_world(
        dlx=ExchangeFacts(name=DLX, type="topic"),
        queues=[QueueFacts(name="q", arguments=TO_DLX), QueueFacts(name="mine")],
        bindings=[bound("attune.executions", "q", pattern), bound(DLX, "mine", binding)],
    )

    assert walk(world, "q", "mine").answer is answer


words = st.lists(st.sampled_from(["a", "b", "", "*", "#"]), max_size=5)


def _by_regex(pattern: str, key: str) -> bool:
    """Another way to say what a topic pattern means: words between dots, each with a dot behind it."""
    parts = {"*": r"[^.]*\.", "#": r"(?:[^.]*\.)*"}
    text = "".join(parts.get(word, re.escape(word) + r"\.") for word in pattern.split(".")) if pattern else ""
    return re.fullmatch(text, f"{key}." if key else "") is not None


@given(pattern=words, key=words)
def test_topic_matching_agrees_with_a_regular_expression(pattern: list[str], key: list[str]) -> None:
    assert topic_matches(".".join(pattern), ".".join(key)) is _by_regex(".".join(pattern), ".".join(key))


names = st.sampled_from(["x1", "x2", "x3", "x4"])
keys = st.sampled_from(["a", "b", "a.b", "*", "#", "a.*", ""])


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    types = st.sampled_from(["direct", "topic", "fanout", "headers", "x-odd"])
    optional = st.one_of(st.none(), names)
    exchanges = []
    for name in draw(st.sets(names, min_size=1)):
        alternate = draw(optional)
        exchanges.append(
            ExchangeFacts(
                name=name,
                type=draw(types),
                arguments={"alternate-exchange": alternate} if alternate else {},
                policy_is_known=draw(st.booleans()),
            )
        )
    existing = [exchange.name for exchange in exchanges]
    bindings = draw(
        st.lists(
            st.builds(
                BindingFacts,
                source=st.sampled_from(existing),
                destination=st.sampled_from([*existing, "q1", "q2", "dead"]),
                to_exchange=st.booleans(),
                routing_key=keys,
                arguments=st.sampled_from([{}, {"x-match": "any"}, {"h": "1"}]),
            ),
            max_size=12,
        )
    )
    dead = QueueFacts(name="dead", arguments={"x-dead-letter-exchange": draw(names)})
    return Snapshot(
        exchanges=exchanges, queues=[QueueFacts(name="q1"), QueueFacts(name="q2"), dead], bindings=bindings
    )


@given(snapshot=snapshots(), key=st.sampled_from(["a", "b", "a.b", "", "c"]))
def test_what_is_certain_is_possible_and_every_difference_has_a_reason(snapshot: Snapshot, key: str) -> None:
    for exchange in snapshot.exchanges:
        reach = route(snapshot, exchange, key)

        assert set(reach.certain) <= set(reach.possible)
        assert set(reach.certain) == set(reach.possible) or reach.doubt
        assert not reach.is_incomplete or reach.doubt


@given(snapshot=snapshots())
def test_a_walk_always_ends_in_one_answer_with_a_sentence(snapshot: Snapshot) -> None:
    answer = walk(snapshot, "dead", "q1")

    assert answer.answer in {Answer.ARRIVES, Answer.BROKEN_ROUTE, Answer.UNKNOWN}
    assert answer.sentence
    assert (answer.answer is Answer.ARRIVES) <= (answer.path[-1:] == (QueueStep(name="q1"),))


@given(snapshot=snapshots(), key=keys)
def test_a_binding_more_never_turns_a_yes_into_a_no_where_no_alternate_is_used(
    snapshot: Snapshot, key: str
) -> None:
    if any("alternate-exchange" in exchange.arguments for exchange in snapshot.exchanges.values()):
        return
    before = walk(snapshot, "dead", "q1")
    bindings = [binding for name in snapshot.exchanges for binding in snapshot.bindings_from(name)]
    more = Snapshot(
        exchanges=snapshot.exchanges.values(),
        queues=snapshot.queues.values(),
        bindings=[*bindings, bound(next(iter(snapshot.exchanges)), "q2", key)],
    )

    assert before.answer is not Answer.ARRIVES or walk(more, "dead", "q1").answer is Answer.ARRIVES
