"""The users of the ui: their named tokens, their roles, and the user of a request.

The guard puts the user into `request.state.user` before any route runs. Tokens are compared in constant time, and
none is kept in clear.
"""

import hashlib
import hmac
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from starlette.requests import Request

from dlq_handler.operations.operation import Actor, Client
from dlq_handler.web.errors import Refused
from dlq_handler.web.options import UiOptions, read_token

ANONYMOUS = "anonymous@loopback"


class Role(StrEnum):
    READ = "read"
    OPERATE = "operate"


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    name: str
    role: Role
    client: Client

    @property
    def may_operate(self) -> bool:
        return self.role is Role.OPERATE

    @property
    def actor(self) -> Actor:
        return Actor(username=self.name, client=self.client)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedToken:
    name: str
    role: Role
    key: bytes = field(repr=False)
    """Made from the token: proves who knows it, and signs what only its owner may bring back."""


def named_token(*, name: str, role: Role, token: str) -> NamedToken:
    return NamedToken(name=name, role=role, key=_key_of(token))


def read_tokens(options: UiOptions) -> "Tokens":
    """From the token files. The settings were checked, so each file holds a token."""
    return Tokens(
        named_token(name=one.name, role=Role(one.role), token=read_token(one.token_file))
        for one in options.tokens
    )


class Tokens:
    def __init__(self, tokens: Iterable[NamedToken] = ()) -> None:
        self._by_name = {token.name: token for token in tokens}

    @property
    def are_needed(self) -> bool:
        return bool(self._by_name)

    def owner_of(self, token: str) -> NamedToken | None:
        key, found = _key_of(token), None
        for one in self:
            # To the end, and byte by byte in constant time: how far a guess was right must not be measurable.
            if hmac.compare_digest(key, one.key):
                found = one
        return found

    def __iter__(self) -> Iterator[NamedToken]:
        return iter(self._by_name.values())


def _key_of(token: str) -> bytes:
    return hashlib.sha256(b"dlq-handler ui token\0" + token.encode(errors="surrogateescape")).digest()


def user_of(request: Request) -> User:
    user = request.state.user
    assert isinstance(user, User)  # noqa: S101  the guard is in front of every route
    return user


def needs_operate(request: Request) -> None:
    """Every authenticated user may read. Actions and raw bodies need the role operate. Raises `Refused`."""
    user = user_of(request)
    if not user.may_operate:
        raise Refused(
            403,
            f"This is for the role operate; {user.name} has the role {user.role.value}. The setting "
            f"dlq_handler.ui.tokens gives roles.",
        )
