"""A message to publish, and the possible outcomes. Values only."""

from dataclasses import dataclass

PUBLISH_CHECK_PREFIX = "dlq_handler.publish_check."
"""Of the exchange and queue of a publish check."""
PUBLISH_CHECK_PATTERN = r"dlq_handler\.publish_check\.[0-9a-f\-]+"
"""As a part of a permission of the broker's user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    message_id: str
    correlation_id: str
    exchange: str
    routing_key: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The broker is now responsible for it."""

    text: str = "confirmed"


@dataclass(frozen=True, slots=True)
class Unroutable:
    """No queue is bound with this routing key, or the exchange does not exist. It was not delivered."""

    text: str


@dataclass(frozen=True, slots=True)
class PublishRefused:
    """The broker refused it, or it was not sent. It was not delivered."""

    text: str


@dataclass(frozen=True, slots=True)
class Unanswered:
    """No answer. It may have been delivered, or may be delivered later."""

    text: str


PublishOutcome = Confirmed | Unroutable | PublishRefused | Unanswered
