"""Collect the body of one message from its frames. Of a body above the limit only the beginning is kept."""

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyLimit:
    """A body of more than `max_bytes` is hashed frame by frame, and only its first `kept_bytes` are kept."""

    max_bytes: int
    kept_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageBody:
    kept: bytes
    size: int
    """Of the whole body, as it was sent."""
    sha256: str | None
    """Of the whole body, if only its beginning is kept."""


class BodyCollector:
    __slots__ = ("_hash", "_kept", "_room", "_size", "missing_bytes")

    def __init__(self, size: int, limit: BodyLimit | None) -> None:
        self._size, self.missing_bytes, self._room = size, size, size
        self._hash = None
        if limit is not None and size > limit.max_bytes:
            self._hash, self._room = hashlib.sha256(), limit.kept_bytes
        self._kept: list[bytes] = []

    def add(self, part: bytes) -> None:
        self.missing_bytes -= len(part)
        if self._hash is not None:
            self._hash.update(part)
            # A view would keep the whole frame alive.
            part = part[: self._room]
            self._room -= len(part)
        if part:
            self._kept.append(part)

    def collect(self) -> MessageBody:
        return MessageBody(
            kept=b"".join(self._kept),
            size=self._size,
            sha256=None if self._hash is None else self._hash.hexdigest(),
        )
