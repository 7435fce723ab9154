"""Do dead letters from a queue reach the intake queue? The walk follows the routes as the broker does.

Pure. The answer is yes, no with an explanation, or unknown; never a guess. Only the first death counts: a message that
dies again in another queue and arrives from there is not followed.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice, product

from dlq_handler.broker.admin.snapshot import QueueFacts, Snapshot, is_pattern
from dlq_handler.host.names import KEYS_OF_PATTERNS
from dlq_handler.topology.routing import DEFAULT_EXCHANGE, Path, QueueStep, Reach, route

DEAD_LETTER_EXCHANGE = "x-dead-letter-exchange"
DEAD_LETTER_ROUTING_KEY = "x-dead-letter-routing-key"

# A pattern with several '#' has too many keys to try all. If none of this many is lost, the answer is unknown.
_MOST_SAMPLES = 2000


class Answer(StrEnum):
    ARRIVES = "yes"
    BROKEN_ROUTE = "no"
    UNKNOWN = "unknown"
    NO_QUEUE = "no queue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """The answer for one queue, the path of its dead letters, and the explanation."""

    queue: str
    answer: Answer
    path: Path = ()
    sentence: str


def walk(snapshot: Snapshot, queue: str, intake: str | None) -> Walk:
    """Follow the dead letters of `queue`. For a yes, every key that its messages can carry must arrive.

    Without an intake queue the question is whether they arrive in any queue.
    """
    facts = snapshot.queues.get(queue)
    if facts is None:
        return Walk(
            queue=queue,
            answer=Answer.NO_QUEUE,
            sentence="there is no such queue; Attune's publish to it is confirmed and lost",
        )
    early = _decided_at_the_queue(snapshot, facts)
    if early is not None:
        return early
    exchange = facts.text(DEAD_LETTER_EXCHANGE) or DEFAULT_EXCHANGE
    if not snapshot.is_complete:
        return _unknown(queue, "bindings and policies can only be read by the management API")
    if intake is not None and intake not in snapshot.queues:
        return _broken_route(queue, f"the intake queue {intake!r} does not exist")
    walks = [
        _walk_keys(snapshot, queue, exchange, keys, intake) for keys in keys_after_death(snapshot, facts)
    ]
    worst = (Answer.BROKEN_ROUTE, Answer.UNKNOWN, Answer.ARRIVES)
    return min(walks, key=lambda one: worst.index(one.answer))


def _decided_at_the_queue(snapshot: Snapshot, queue: QueueFacts) -> Walk | None:
    if queue.type == "stream":
        return _broken_route(queue.name, "it is a stream, and a stream dead-letters nothing")
    exchange = queue.text(DEAD_LETTER_EXCHANGE)
    if exchange is None:
        if queue.policy_is_known and snapshot.is_complete:
            return _broken_route(
                queue.name,
                "it has no dead-letter exchange, so messages that expire or are rejected there are lost",
            )
        return _unknown(queue.name, "it has no x-dead-letter-exchange argument; a policy may set one")
    if exchange != DEFAULT_EXCHANGE and exchange not in snapshot.exchanges:
        return _broken_route(queue.name, f"its dead-letter exchange {exchange!r} does not exist")
    if not queue.policy_is_known and DEAD_LETTER_ROUTING_KEY not in queue.arguments:
        return _unknown(queue.name, "policies can change where its dead letters go, and cannot be read")
    return None


@dataclass(frozen=True, slots=True)
class Keys:
    """One key, or all keys that match a pattern: a topic binding does not show which of them occur."""

    text: str
    is_pattern: bool = False


def keys_after_death(snapshot: Snapshot, queue: QueueFacts) -> tuple[Keys, ...]:
    """The keys with which its messages come to the dead-letter exchange.

    A dead letter keeps its key unless the queue sets another; the queue's bindings show which keys came in.
    """
    fixed = queue.text(DEAD_LETTER_ROUTING_KEY)
    if fixed is not None:
        return (Keys(fixed),)
    found: dict[Keys, None] = {}
    for binding in snapshot.bindings_into(queue.name):
        source = snapshot.exchanges.get(binding.source)
        match source.type if source else None:
            case "direct":
                found[Keys(binding.routing_key)] = None
            case "topic" if listed := KEYS_OF_PATTERNS.get((queue.name, binding.routing_key)):
                # A pattern stands for any key, but these are all that Attune publishes.
                found |= {Keys(key): None for key in listed}
            case "topic":
                found[Keys(binding.routing_key, is_pattern(binding.routing_key))] = None
            case _:
                # Other types ignore the key, so any key can have come in.
                found[Keys("#", is_pattern=True)] = None
    # Without bindings there is one way in: the default exchange, whose key is the queue's name.
    return tuple(found) or (Keys(queue.name),)


def _walk_keys(snapshot: Snapshot, queue: str, exchange: str, keys: Keys, intake: str | None) -> Walk:
    samples = list(islice(_samples(snapshot, keys), _MOST_SAMPLES))
    doubt = "it can hold messages with too many different keys" if len(samples) == _MOST_SAMPLES else None
    path: Path = ()
    for sample in samples:
        reach = route(snapshot, exchange, sample)
        if target := _target(reach.certain, intake):
            path = path or reach.certain[target]
            if keys.is_pattern and reach.used_alternate:
                # A key that matches another binding skips the alternate exchange, and not all keys can be tried.
                doubt = doubt or f"messages with key {keys.text!r} arrive only by an alternate exchange"
        elif _target(reach.possible, intake) or reach.is_blind:
            doubt = reach.doubt or doubt
        else:
            return _broken_route(queue, _lost(snapshot, exchange, keys, sample, reach))
    steps = (QueueStep(name=queue), *path)
    if doubt is not None:
        return Walk(queue=queue, answer=Answer.UNKNOWN, path=steps, sentence=doubt)
    return Walk(queue=queue, answer=Answer.ARRIVES, path=steps, sentence="its dead letters arrive")


def _target(reached: Mapping[str, Path], intake: str | None) -> str | None:
    return next(iter(reached), None) if intake is None else intake if intake in reached else None


def _samples(snapshot: Snapshot, keys: Keys) -> Iterator[str]:
    """Keys that represent all keys: words that no binding names, and '#' in every length that a pattern distinguishes.

    A binding that takes such a key takes it for its wildcards, so it takes every other key of that shape too.
    """
    if not keys.is_pattern:
        yield keys.text
        return
    fresh = snapshot.unused_word
    lengths = range(snapshot.longest_pattern + 2)
    choices = [
        [[fresh] * length for length in lengths] if part == "#" else [[fresh if part == "*" else part]]
        for part in keys.text.split(".")
    ]
    for parts in product(*choices):
        yield ".".join(word for part in parts for word in part)


def _lost(snapshot: Snapshot, exchange: str, keys: Keys, sample: str, reach: Reach) -> str:
    where = "the default exchange" if exchange == DEFAULT_EXCHANGE else f"exchange {exchange!r}"
    if exchange in snapshot.exchanges:
        where = f"{snapshot.exchanges[exchange].type} {where}"
    fate = f"brings it to {_quoted(reach.possible)} instead" if reach.possible else "drops it"
    if not keys.is_pattern:
        return f"{where} has no way to the intake queue for key {sample!r} and {fate}"
    return (
        f"its messages can carry any key that matches {keys.text!r}, which cannot be listed: for one like "
        f"{sample!r} {where} has no way to the intake queue and {fate}"
    )


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names))


def _broken_route(queue: str, sentence: str) -> Walk:
    return Walk(queue=queue, answer=Answer.BROKEN_ROUTE, sentence=sentence)


def _unknown(queue: str, sentence: str) -> Walk:
    return Walk(queue=queue, answer=Answer.UNKNOWN, sentence=sentence)
