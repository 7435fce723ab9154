"""A delivered message as plain values, before anything in it is trusted. The consumer's user reads it into an item."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CutBody:
    """Facts about a body that was too large to be kept: only its beginning is there."""

    size: int
    sha256: str
    """Of the whole body, in hex digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawMessage:
    exchange: str
    routing_key: str
    redelivered: bool
    message_id: str | None
    correlation_id: str | None
    headers: Mapping[str, object]
    body: bytes
    cut: CutBody | None = None
    """Set exactly when `body` is only the beginning of a body."""
    undecodable: str | None = None
    """Why the AMQP properties could not be decoded; None: they were decoded."""
    raw_properties: bytes = b""
    """The undecoded properties. They distinguish two such messages."""

    @property
    def body_size(self) -> int:
        return self.cut.size if self.cut else len(self.body)

    @property
    def body_sha256(self) -> str:
        """Of the whole body, also of one that was cut."""
        return self.cut.sha256 if self.cut else hashlib.sha256(self.body).hexdigest()
