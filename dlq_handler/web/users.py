"""The users of the ui: their named tokens, their roles, the user of a request, and the limit of wrong tokens.

The guard puts the user into `request.state.user` before any route runs. Tokens are compared in constant time, and
none is kept in clear.
"""

import asyncio
import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv6Address, IPv6Network, ip_address

import structlog
from starlette.requests import Request
from starlette.responses import Response

from dlq_handler.clock import monotonic_seconds
from dlq_handler.logs import RepeatLimit
from dlq_handler.operations.operation import Actor, Client
from dlq_handler.web.errors import ErrorAnswers, Refused
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


# Typing errors are answered at once.
FREE_A_MINUTE = 5
PAUSE_SECONDS = 1.0
MOST_WAITING_OF_ONE = 2
RETRY_SECONDS = 60
# Addresses that are remembered.
MOST_ADDRESSES = 10_000

log = structlog.get_logger()


@dataclass(slots=True)
class _Guesses:
    since: float
    count: int = 0
    waiting: int = 0

    def add(self, now: float) -> None:
        if self.is_old(now):
            self.since, self.count = now, 0
        self.count += 1

    def is_old(self, now: float) -> bool:
        return now - self.since >= 60


class GuessLimit:
    def __init__(
        self,
        errors: ErrorAnswers,
        *,
        now: Callable[[], float] = monotonic_seconds,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._errors, self._now, self._sleep = errors, now, sleep
        self._by_address: OrderedDict[str, _Guesses] = OrderedDict()
        self._repeats = RepeatLimit(now=now)

    async def refuse(self, request: Request) -> Response | None:
        """Call this before each comparison of a token. None: compare it now, without another await in between."""
        one = self._by_address.get(_address(request))
        if one is None or one.is_old(self._now()) or one.count < FREE_A_MINUTE:
            return None
        if one.waiting >= MOST_WAITING_OF_ONE:
            return self._too_many(request)
        one.waiting += 1
        try:
            await self._sleep(PAUSE_SECONDS)
        finally:
            one.waiting -= 1
        return None

    def add(self, request: Request) -> None:
        """Call this after each wrong token."""
        dropped = self._repeats.ask("token.refused")
        if dropped is not None:
            client = request.client.host if request.client else ""
            log.warning("token.refused", client=client, more=dropped)
        address, now = _address(request), self._now()
        one = self._by_address.pop(address, None) or _Guesses(now)
        self._by_address[address] = one
        one.add(now)
        if len(self._by_address) > MOST_ADDRESSES:
            self._by_address.popitem(last=False)

    def _too_many(self, request: Request) -> Response:
        text = f"This address sent too many wrong tokens. Try again in {RETRY_SECONDS} s."
        answer = self._errors.answer(request, 429, "Too many attempts", text)
        answer.headers["Retry-After"] = str(RETRY_SECONDS)
        # The next guess costs a connection.
        answer.headers["Connection"] = "close"
        return answer


def _address(request: Request) -> str:
    """The client's address. Of IPv6 the network of 64 bits, because one machine can use all addresses in it."""
    host = request.client.host if request.client else ""
    try:
        found = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(found, IPv6Address) and found.ipv4_mapped is None:
        return str(IPv6Network((found, 64), strict=False))
    return host
