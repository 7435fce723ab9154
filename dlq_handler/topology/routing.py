"""Route one key through a snapshot as RabbitMQ would: which queues does a message reach?

Pure and without guesses: what depends on things that a snapshot does not hold (message headers, plugin
exchange types, policies that cannot be read) makes a queue possible, not certain.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dlq_handler.broker.admin.snapshot import BindingFacts, ExchangeFacts, Snapshot

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
    """The queues reached for sure and at best, each with the way there. Blind: others are possible too."""

    certain: Mapping[str, Path]
    possible: Mapping[str, Path]
    doubt: str | None
    is_blind: bool
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
        is_blind=certain.is_blind or possible.is_blind,
        used_alternate=certain.used_alternate or possible.used_alternate,
    )


class _Walker:
    """One breadth-first walk. Hopeful: what may match does, and an alternate exchange is taken as well."""

    def __init__(self, snapshot: Snapshot, key: str, *, hopeful: bool) -> None:
        self._snapshot = snapshot
        self._key = key
        self._hopeful = hopeful
        self.doubt: str | None = None
        self.is_blind = False
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
            self.is_blind = True
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
        looks_at_x = kind.endswith("-with-x")
        asked = [
            name
            for name in binding.arguments
            if name != "x-match" and (looks_at_x or not name.startswith("x-"))
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
