"""Do dead letters from a queue reach the intake queue? Routes are followed through a snapshot as RabbitMQ does it.

Pure and without guesses: what depends on things that a snapshot does not hold (message headers, plugin exchange types,
policies that cannot be read) makes a queue possible, not certain. The answer is yes, no with an explanation, or
unknown. Only the first death counts: a message that dies again in another queue and arrives from there is not followed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice, product

from dlq_handler.broker.admin.snapshot import BindingFacts, ExchangeFacts, QueueFacts, Snapshot, is_pattern
from dlq_handler.host.names import KEYS_OF_PATTERNS

DEFAULT_EXCHANGE = ""
ALTERNATE_EXCHANGE = "alternate-exchange"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeStep:
    name: str
    """Empty: the default exchange."""
    type: str
    key: str
    """Routing key of the message there."""

    def __str__(self) -> str:
        exchange = f"{self.type} exchange {self.name!r}" if self.name else "the default exchange"
        return f"{exchange} with key {self.key!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStep:
    name: str

    def __str__(self) -> str:
        return f"queue {self.name!r}"


Step = ExchangeStep | QueueStep
Path = tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The queues reached for sure and at best, each with the way there. Incomplete: others are possible too."""

    certain: Mapping[str, Path]
    possible: Mapping[str, Path]
    doubt: str | None
    is_incomplete: bool
    used_alternate: bool


@dataclass(frozen=True, slots=True)
class _Matches:
    certain: Sequence[BindingFacts] = ()
    possible: Sequence[BindingFacts] = ()


def route(snapshot: Snapshot, exchange: str, key: str) -> Reach:
    certain = _Walker(snapshot, key, hopeful=False)
    possible = _Walker(snapshot, key, hopeful=True)
    return Reach(
        certain=certain.run(exchange),
        possible=possible.run(exchange),
        doubt=certain.doubt or possible.doubt,
        is_incomplete=certain.is_incomplete or possible.is_incomplete,
        used_alternate=certain.used_alternate or possible.used_alternate,
    )


class _Walker:
    """One breadth-first walk. Hopeful: what may match does, and an alternate exchange is taken as well."""

    def __init__(self, snapshot: Snapshot, key: str, *, hopeful: bool) -> None:
        self._snapshot = snapshot
        self._key = key
        self._hopeful = hopeful
        self.doubt: str | None = None
        self.is_incomplete = False
        self.used_alternate = False

    def run(self, start: str) -> dict[str, Path]:
        queues: dict[str, Path] = {}
        seen = {start}
        todo: list[tuple[str, Path]] = [(start, ())]
        for exchange, path in todo:
            here = (*path, self._step(exchange))
            for name, is_exchange in self._destinations(exchange):
                if not is_exchange:
                    if name in self._snapshot.queues:
                        queues.setdefault(name, (*here, QueueStep(name=name)))
                elif name in self._snapshot.exchanges and name not in seen:
                    # As in the broker: each exchange once, so a ring of bindings ends.
                    seen.add(name)
                    todo.append((name, here))
        return queues

    def _destinations(self, name: str) -> Iterator[tuple[str, bool]]:
        if name == DEFAULT_EXCHANGE:
            yield self._key, False
            return
        exchange = self._snapshot.exchanges[name]
        matches = match_bindings(self._snapshot, exchange, self._key)
        taken = [*matches.certain, *matches.possible] if self._hopeful else matches.certain
        for binding in taken:
            yield binding.destination, binding.to_exchange
        if matches.possible:
            self.doubt = self.doubt or _doubt_about(exchange)
        if matches.certain or (matches.possible and not self._hopeful):
            return
        if not exchange.policy_is_known and ALTERNATE_EXCHANGE not in exchange.arguments:
            self.doubt = f"exchange {name!r} may be under a policy, which cannot be read"
            self.is_incomplete = True
        alternate = exchange.text(ALTERNATE_EXCHANGE)
        if alternate is not None:
            self.used_alternate = True
            yield alternate, True

    def _step(self, name: str) -> ExchangeStep:
        kind = "direct" if name == DEFAULT_EXCHANGE else self._snapshot.exchanges[name].type
        return ExchangeStep(name=name, type=kind, key=self._key)


def _doubt_about(exchange: ExchangeFacts) -> str:
    if exchange.type == "headers":
        return f"headers exchange {exchange.name!r} decides by the headers of each message"
    return f"exchange {exchange.name!r} of type {exchange.type!r} decides by rules of its plugin"


def match_bindings(snapshot: Snapshot, exchange: ExchangeFacts, key: str) -> _Matches:
    match exchange.type:
        case "direct":
            return _Matches(snapshot.bindings_with_key(exchange.name, key))
        case "topic":
            by_pattern = [
                binding
                for binding in snapshot.patterns_from(exchange.name)
                if topic_matches(binding.routing_key, key)
            ]
            literal = snapshot.bindings_with_key(exchange.name, key)
            return _Matches([binding for binding in literal if binding not in by_pattern] + by_pattern)
        case "fanout":
            return _Matches(snapshot.bindings_from(exchange.name))
        case "headers":
            return _match_headers(snapshot.bindings_from(exchange.name))
        case _:
            return _Matches(possible=snapshot.bindings_from(exchange.name))


def _match_headers(bindings: Sequence[BindingFacts]) -> _Matches:
    """A binding that names no header matches every message, or none if it asks for "any" of them."""
    certain: list[BindingFacts] = []
    possible: list[BindingFacts] = []
    for binding in bindings:
        kind = str(binding.arguments.get("x-match", "all"))
        matches_x_headers = kind.endswith("-with-x")
        asked = [
            name
            for name in binding.arguments
            if name != "x-match" and (matches_x_headers or not name.startswith("x-"))
        ]
        if asked:
            possible.append(binding)
        elif kind.startswith("all"):
            certain.append(binding)
    return _Matches(certain, possible)


def topic_matches(pattern: str, key: str) -> bool:
    """`*` is one word, `#` any number of words, also none. An empty key has no words at all."""
    words = key.split(".") if key else []
    # reachable[i]: the pattern so far can have used up the first i words.
    reachable = [True] + [False] * len(words)
    for part in pattern.split(".") if pattern else []:
        if part == "#":
            first = reachable.index(True) if True in reachable else len(reachable)
            reachable = [position >= first for position in range(len(reachable))]
        else:
            reachable = [False] + [
                reachable[position] and part in ("*", word) for position, word in enumerate(words)
            ]
    return reachable[-1]


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
    exchange = facts.dead_letter_exchange or DEFAULT_EXCHANGE
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
    exchange = queue.dead_letter_exchange
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
        elif _target(reach.possible, intake) or reach.is_incomplete:
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
