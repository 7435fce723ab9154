"""What a broker holds at one moment: exchanges, queues, bindings, consumers. Facts, indexed for routing."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, count

TTL_ARGUMENT = "x-message-ttl"
DEAD_LETTER_EXCHANGE_ARGUMENT = "x-dead-letter-exchange"

WILDCARDS = frozenset({"*", "#"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Policed:
    """Something that has arguments of its own and may be under a policy."""

    name: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    policy: Mapping[str, object] = field(default_factory=dict)
    policy_is_known: bool = True

    def text(self, argument: str) -> str | None:
        """A setting that an argument gives, or else the policy: for names the argument wins."""
        value = self.arguments.get(argument, self.policy.get(argument.removeprefix("x-")))
        return value if isinstance(value, str) else None

    def least(self, argument: str) -> int | None:
        """A limit: where argument and policy both set it, the smaller one holds."""
        values = (self.arguments.get(argument), self.policy.get(argument.removeprefix("x-")))
        return min((value for value in values if isinstance(value, int)), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeFacts(Policed):
    type: str = "direct"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts(Policed):
    type: str = "classic"
    durable: bool = True
    auto_delete: bool = False
    consumer_count: int | None = None

    @property
    def ttl_ms(self) -> int | None:
        return self.least(TTL_ARGUMENT)

    @property
    def dead_letter_exchange(self) -> str | None:
        return self.text(DEAD_LETTER_EXCHANGE_ARGUMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingFacts:
    source: str
    destination: str
    to_exchange: bool = False
    routing_key: str = ""
    arguments: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerFacts:
    queue: str
    tag: str
    connection: str = ""


class Snapshot:
    """Everything at once. `is_complete` is false when bindings and policies could not be read."""

    def __init__(
        self,
        *,
        exchanges: Iterable[ExchangeFacts] = (),
        queues: Iterable[QueueFacts] = (),
        bindings: Iterable[BindingFacts] = (),
        consumers: Iterable[ConsumerFacts] = (),
        is_complete: bool = True,
        broker_version: str = "",
    ) -> None:
        self.exchanges = {exchange.name: exchange for exchange in exchanges}
        self.queues = {queue.name: queue for queue in queues}
        self.consumers = tuple(consumers)
        self.is_complete = is_complete
        self.broker_version = broker_version
        self._literal: defaultdict[tuple[str, str], list[BindingFacts]] = defaultdict(list)
        self._patterns: defaultdict[str, list[BindingFacts]] = defaultdict(list)
        self._from: defaultdict[str, list[BindingFacts]] = defaultdict(list)
        self._into: defaultdict[str, list[BindingFacts]] = defaultdict(list)
        for binding in bindings:
            self._from[binding.source].append(binding)
            if not binding.to_exchange:
                self._into[binding.destination].append(binding)
            # Thousands of workers are thousands of literal keys on one exchange: found by key, not tried one by one.
            self._literal[binding.source, binding.routing_key].append(binding)
            if is_pattern(binding.routing_key):
                self._patterns[binding.source].append(binding)

    def bindings_from(self, exchange: str) -> Sequence[BindingFacts]:
        return self._from.get(exchange, ())

    def bindings_into(self, queue: str) -> Sequence[BindingFacts]:
        """Those that a person or program made; the default exchange's own are left out."""
        return [binding for binding in self._into.get(queue, ()) if binding.source]

    def bindings_with_key(self, exchange: str, key: str) -> Sequence[BindingFacts]:
        return self._literal.get((exchange, key), ())

    def patterns_from(self, exchange: str) -> Sequence[BindingFacts]:
        return self._patterns.get(exchange, ())

    @cached_property
    def longest_pattern(self) -> int:
        """How many words the longest binding pattern has."""
        patterns = (binding for bindings in self._patterns.values() for binding in bindings)
        return max((len(binding.routing_key.split(".")) for binding in patterns), default=0)

    @cached_property
    def unused_word(self) -> str:
        """A word that no binding key and no name of a queue holds: only wildcards match it."""
        keys = chain((key for _, key in self._literal), self.queues)
        used = {word for key in keys for word in key.split(".")}
        return next(word for word in (f"anything{'-' * tail}" for tail in count()) if word not in used)


def is_pattern(key: str) -> bool:
    return not WILDCARDS.isdisjoint(key.split("."))
