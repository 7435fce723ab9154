"""The named tokens: whose is this one? Answers in the same time whatever was guessed, and keeps no token in clear."""

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field

from dlq_handler.surface.web.visitor import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedToken:
    name: str
    role: Role
    key: bytes = field(repr=False)
    """Made from the token: proves who knows it, and signs what only its owner may bring back."""


def named_token(*, name: str, role: Role, token: str) -> NamedToken:
    return NamedToken(name=name, role=role, key=_key_of(token))


class Tokens:
    def __init__(self, tokens: Iterable[NamedToken] = ()) -> None:
        self._by_name = {token.name: token for token in tokens}

    @property
    def are_needed(self) -> bool:
        return bool(self._by_name)

    def owner_of(self, token: str) -> NamedToken | None:
        key, found = _key_of(token), None
        for one in self._by_name.values():
            # To the end, and byte by byte in constant time: how far a guess was right must not be measurable.
            if hmac.compare_digest(key, one.key):
                found = one
        return found

    def named(self, name: str) -> NamedToken | None:
        return self._by_name.get(name)


def _key_of(token: str) -> bytes:
    return hashlib.sha256(b"dlq-handler ui token\0" + token.encode(errors="surrogateescape")).digest()
