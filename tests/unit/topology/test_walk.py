"""The resolver on snapshots. That it agrees with a real broker is shown in tests/integration/topology."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_handler.broker.admin.snapshot import BindingFacts, ExchangeFacts, QueueFacts, Snapshot
from dlq_handler.host.names import STOCK_QUEUE
from dlq_handler.topology.routing import QueueStep, route, topic_matches
from dlq_handler.topology.walk import Answer, Walk, walk
from tests.support.topologies import DLX, a_stock_world, a_worker_queue, bound, dispatch_key

WORKER_QUEUE = "worker.7.executions"


def walked(snapshot: Snapshot, queue: str = WORKER_QUEUE, intake: str | None = STOCK_QUEUE) -> Walk:
    return walk(snapshot, queue, intake)


def test_in_the_stock_world_everything_that_expires_is_lost() -> None:
    answer = walked(a_stock_world())

    assert answer.answer is Answer.BROKEN_ROUTE
    assert answer.sentence == (
        "direct exchange 'attune.dlx' has no way to the intake queue for key 'execution.dispatch.worker.7' "
        "and drops it"
    )


def test_the_exact_key_repairs_the_route_and_the_path_is_shown() -> None:
    answer = walked(a_stock_world(bindings=[bound(DLX, STOCK_QUEUE, dispatch_key())]))

    assert answer.answer is Answer.ARRIVES
    assert tuple(map(str, answer.path)) == (
        "queue 'worker.7.executions'",
        "direct exchange 'attune.dlx' with key 'execution.dispatch.worker.7'",
        "queue 'attune.dlx.queue'",
    )


def test_a_letter_that_goes_to_another_queue_is_a_broken_route_that_names_it() -> None:
    world = a_stock_world(bindings=[bound(DLX, "else", dispatch_key())], queues=[QueueFacts(name="else")])

    assert walked(world).answer is Answer.BROKEN_ROUTE
    assert "brings it to 'else' instead" in walked(world).sentence


@pytest.mark.parametrize(
    ("queue", "sentence"),
    [
        (a_worker_queue(arguments={}), "no dead-letter exchange"),
        (a_worker_queue(type="stream"), "a stream dead-letters nothing"),
        (a_worker_queue(arguments={"x-dead-letter-exchange": "gone"}), "'gone' does not exist"),
    ],
)
def test_a_queue_that_dead_letters_nowhere_is_a_broken_route(queue: QueueFacts, sentence: str) -> None:
    answer = walked(a_stock_world(queues=[queue], bindings=[bound(DLX, STOCK_QUEUE, dispatch_key())]))

    assert answer.answer is Answer.BROKEN_ROUTE
    assert sentence in answer.sentence


def test_a_missing_queue_and_a_missing_intake_are_told_apart() -> None:
    world = a_stock_world()

    assert walked(world, "worker.8.executions").answer is Answer.NO_QUEUE
    assert "intake queue 'mine' does not exist" in walked(world, intake="mine").sentence


def test_one_key_that_is_lost_breaks_the_route_of_a_queue_with_several() -> None:
    world = a_stock_world(
        bindings=[
            bound(DLX, STOCK_QUEUE, dispatch_key()),
            bound("attune.executions", WORKER_QUEUE, "execution.urgent.7"),
        ]
    )

    assert walked(world).answer is Answer.BROKEN_ROUTE
    assert "execution.urgent.7" in walked(world).sentence


def test_a_queue_without_bindings_is_fed_by_its_name() -> None:
    world = Snapshot(
        exchanges=[ExchangeFacts(name=DLX)],
        queues=[a_worker_queue(), QueueFacts(name=STOCK_QUEUE)],
        bindings=[bound("", WORKER_QUEUE, WORKER_QUEUE), bound(DLX, STOCK_QUEUE, WORKER_QUEUE)],
    )

    assert walked(world).answer is Answer.ARRIVES


def test_a_queue_bound_with_a_pattern_is_a_broken_route_behind_a_direct_exchange() -> None:
    world = a_stock_world(bindings=[bound(DLX, STOCK_QUEUE, "event.created")])

    answer = walked(world, "attune.events.queue")

    assert answer.answer is Answer.BROKEN_ROUTE
    assert "any key that matches '#', which cannot be listed" in answer.sentence


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
        queues=[QueueFacts(name="q", arguments={"x-dead-letter-exchange": DLX}), QueueFacts(name="mine")],
        bindings=[bound("attune.executions", "q", pattern), bound(DLX, "mine", binding)],
    )

    assert walked(world, "q", "mine").answer is answer


def test_a_pattern_that_arrives_only_by_an_alternate_exchange_cannot_be_told() -> None:
    world = a_stock_world(
        dlx=ExchangeFacts(name=DLX, type="topic", policy={"alternate-exchange": "attune.events"}),
        queues=[QueueFacts(name="mine"), QueueFacts(name="q", arguments={"x-dead-letter-exchange": DLX})],
        bindings=[bound("attune.executions", "q", "a.*"), bound("attune.events", "mine", "#")],
    )
    alone = Snapshot(
        exchanges=world.exchanges.values(),
        queues=world.queues.values(),
        bindings=[bound("attune.executions", "q", "a.*"), bound("attune.events", "mine", "#")],
    )

    assert walked(alone, "q", "mine").answer is Answer.UNKNOWN


def test_a_policy_that_may_not_be_read_leaves_it_open() -> None:
    without_argument = a_worker_queue(arguments={}, policy_is_known=False)
    unread_exchange = ExchangeFacts(name=DLX, policy_is_known=False)

    assert walked(a_stock_world(queues=[without_argument])).answer is Answer.UNKNOWN
    assert walked(a_stock_world(dlx=unread_exchange)).answer is Answer.UNKNOWN
    assert "cannot be read" in walked(a_stock_world(dlx=unread_exchange)).sentence


def test_a_plugin_exchange_leaves_it_open_only_where_it_could_lead_to_the_intake() -> None:
    hashing = ExchangeFacts(name=DLX, type="x-consistent-hash")
    reaches = a_stock_world(dlx=hashing)
    elsewhere = a_stock_world(dlx=hashing, queues=[QueueFacts(name="mine")])

    assert walked(reaches).answer is Answer.UNKNOWN
    assert walked(elsewhere, intake="mine").answer is Answer.BROKEN_ROUTE


def test_without_bindings_to_read_only_what_is_certain_is_said() -> None:
    partial = a_stock_world(is_complete=False)
    no_exchange = Snapshot(queues=[a_worker_queue()], is_complete=False)

    assert walked(partial).answer is Answer.UNKNOWN
    assert walked(no_exchange).answer is Answer.BROKEN_ROUTE


def test_without_intake_the_question_is_whether_it_arrives_anywhere() -> None:
    kept = a_stock_world(bindings=[bound(DLX, "else", dispatch_key())], queues=[QueueFacts(name="else")])

    assert walked(a_stock_world(), intake=None).answer is Answer.BROKEN_ROUTE
    assert walked(kept, intake=None).answer is Answer.ARRIVES


words = st.lists(st.sampled_from(["a", "b", "", "*", "#"]), max_size=5)


def _by_regex(pattern: str, key: str) -> bool:
    """Another way to say what a topic pattern means: words between dots, each with a dot behind it."""
    parts = {"*": r"[^.]*\.", "#": r"(?:[^.]*\.)*"}
    text = "".join(parts.get(word, re.escape(word) + r"\.") for word in pattern.split(".")) if pattern else ""
    return re.fullmatch(text, f"{key}." if key else "") is not None


@given(pattern=words, key=st.lists(st.sampled_from(["a", "b", "", "*", "#"]), max_size=5))
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
        assert not reach.is_blind or reach.doubt


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
