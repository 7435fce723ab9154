"""The guard in front of every route, static files and unknown paths included: who asks, and may it come in?

Promises: none of these reaches a route: a request under a foreign host name, one that a page of another site made the
browser send, one without a valid token, one that a proxy forwarded where no token is needed. A body is bounded.
Never: decides what a role may do, which the routes know.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from html import escape
from urllib.parse import parse_qs, quote, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dlq_handler.operations.operation import Client
from dlq_handler.web.errors import ErrorAnswers
from dlq_handler.web.session import Logouts, Session, Sessions
from dlq_handler.web.users import ANONYMOUS, GuessLimit, Role, Tokens, User

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]+)?")
THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})
API = "/api/"
LOGIN = "/login"
# What the login page itself needs is for everybody.
FOR_EVERYBODY = (LOGIN, "/static/")
LARGEST_BODY_BYTES = 65_536
# Before a token is shown: a login is a token and a path.
LARGEST_LOGIN_BYTES = 4096
MOST_FIELDS = 100
# Set by proxies. Behind a proxy the peer's address is not the client's.
FORWARDED = frozenset(
    {"forwarded", "client", "x-real-ip", "x-client-ip", "true-client-ip", "cf-connecting-ip"}
)
FORWARDED_PREFIX = "x-forwarded-"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Origins:
    """Host names and origins of this listener.

    Another site can let a name of its own resolve to this machine, so that a browser sends requests of that site here.
    Only the Host header shows it.
    """

    hosts: Collection[str]
    """Names without ports: an attacker who controls a DNS name does not control another port of this machine."""
    external_url: str | None = None

    @classmethod
    def of(cls, *, host: str, external_url: str | None) -> "Origins":
        external = urlsplit(external_url).hostname if external_url else None
        named = {host.lower(), *((external,) if external else ())} - {"0.0.0.0", "::"}  # noqa: S104  compared with
        return cls(hosts=THIS_MACHINE | named, external_url=external_url)

    def has_host(self, header: str) -> bool:
        found = _HOST.fullmatch(header)
        return found is not None and found["name"].strip("[]").lower() in self.hosts

    def is_own(self, origin: str, *, host_header: str) -> bool:
        """True: a page of this dashboard can have sent it, by the external URL or by the requested host."""
        if origin == self.external_url:
            return True
        # Behind a proxy the browser may use https and the proxy http, so the scheme is not compared.
        return self.has_host(host_header) and origin.partition("://")[2].lower() == host_header.lower()

    @property
    def is_secure(self) -> bool:
        """True: browsers use https, so the cookie can be restricted to it."""
        return bool(self.external_url) and str(self.external_url).startswith("https://")


class Guard:
    def __init__(
        self,
        app: ASGIApp,
        *,
        tokens: Tokens,
        sessions: Sessions,
        origins: Origins,
        guesses: GuessLimit,
        logouts: Logouts,
        errors: ErrorAnswers,
    ) -> None:
        self._app, self._tokens, self._sessions, self._origins = app, tokens, sessions, origins
        self._guesses, self._logouts, self._errors = guesses, logouts, errors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        refused = self._refused_by_origin(request) or await self._refused(request)
        if refused is None and request.method not in SAFE_METHODS:
            receive, refused = await self._checked_body(request)
        if refused is not None:
            await refused(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _refused_by_origin(self, request: Request) -> Response | None:
        if not self._origins.has_host(request.headers.get("host", "")):
            return self._errors.answer(
                request,
                421,
                "Unknown host name",
                "dlq-handler does not serve this host name. Use localhost, or the host in dlq_handler.ui.external_url.",
            )
        if _is_from_another_site(request):
            return self._errors.answer(
                request,
                403,
                "Sent from elsewhere",
                "A page of another site made your browser send this. Open the address yourself.",
            )
        if not self._tokens.are_needed and _is_forwarded(request):
            return self._errors.answer(
                request,
                403,
                "Forwarded without a token",
                "A proxy forwarded this request, so it may come from another machine. "
                "Set dlq_handler.ui.tokens, and let the proxy or its users send one.",
            )
        return None

    async def _refused(self, request: Request) -> Response | None:
        request.state.csrf, request.state.user = "", None
        path = request.url.path
        client = Client.API if path.startswith(API) else Client.BROWSER
        if not self._tokens.are_needed:
            request.state.user = User(name=ANONYMOUS, role=Role.OPERATE, client=client)
            request.state.csrf = self._sessions.csrf_of(None)
            return None
        session = self._sessions.read(request)
        if session is not None and await self._logouts.has(session):
            session = None
        request.state.session = session
        owner = session.owner if session is not None else None
        if "authorization" in request.headers:
            owner = None
            if (token := _bearer_token(request)) is not None:
                if (too_many := await self._guesses.refuse(request)) is not None:
                    return too_many
                owner = self._tokens.owner_of(token)
                if owner is None:
                    self._guesses.add(request)
        if owner is not None:
            request.state.user = User(name=owner.name, role=owner.role, client=client)
            request.state.csrf = self._sessions.csrf_of(session)
            return None
        return None if path.startswith(FOR_EVERYBODY) else self._asked_in(request, client)

    async def _checked_body(self, request: Request) -> tuple[Receive, Response | None]:
        """Read, so that its size and the form's own secret can be checked; the route reads it again from memory."""
        is_login = request.state.user is None or request.url.path == LOGIN
        most = LARGEST_LOGIN_BYTES if is_login else LARGEST_BODY_BYTES
        body = bytearray()
        # The listener has checked that the length, where it is given, is a number, and refuses chunks.
        size = int(request.headers.get("content-length", "0"))
        if size <= most:
            async for chunk in request.stream():
                body += chunk
                size = len(body)
                if size > most:
                    break
        if size > most:
            text = f"The body of this request has {size} bytes or more. The limit is {most}."
            refused = self._errors.answer(request, 413, "Too large", text)
            # Its rest is not read.
            refused.headers["Connection"] = "close"
            return request.receive, refused
        return _replayed(bytes(body), request.receive), self._foreign(request, bytes(body))

    def _foreign(self, request: Request, body: bytes) -> Response | None:
        """A refusal when the browser was made to send it by a page of another site."""
        origin = request.headers.get("origin")
        is_bearer = "authorization" in request.headers and self._tokens.are_needed
        if origin is not None and not self._origins.is_own(
            origin, host_header=request.headers.get("host", "")
        ):
            return self._errors.answer(
                request,
                403,
                "Sent from elsewhere",
                f"A page of {origin} sent this request, not the dashboard.",
            )
        if is_bearer:
            return None  # no browser adds this header by itself
        if request.url.path.startswith(API):
            # No form can send JSON, and no script of another site may without asking first.
            if request.headers.get("content-type", "").partition(";")[0].strip() == "application/json":
                return None
            return self._errors.answer(request, 415, "Not JSON", "Send Content-Type: application/json.")
        try:
            given = parse_qs(body.decode(errors="replace"), max_num_fields=MOST_FIELDS).get("csrf", [""])[0]
        except ValueError:
            return self._errors.answer(
                request, 400, "Not understood", f"A form may have {MOST_FIELDS} fields; this one has more."
            )
        session: Session | None = getattr(request.state, "session", None)
        if request.url.path == LOGIN or self._sessions.is_valid_csrf(session, given):
            return None  # to log in proves by itself that one knows a token
        return self._errors.answer(
            request,
            403,
            "The form is too old",
            "It was made before you logged in, or before the replica was restarted. Go back, load the page again, and "
            "send it then. Nothing was done.",
        )

    def _asked_in(self, request: Request, client: Client) -> Response:
        if client is Client.API:
            answer = self._errors.answer(
                request,
                401,
                "No valid token",
                "Send one of dlq_handler.ui.tokens: Authorization: Bearer TOKEN",
            )
            answer.headers["WWW-Authenticate"] = "Bearer"
            return answer
        if request.method not in SAFE_METHODS:
            return self._errors.answer(
                request,
                401,
                "Not logged in",
                "Your login has ended. Nothing was done; log in, and send it again.",
            )
        here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        if (
            request.headers.get("sec-fetch-site") == "cross-site"
            and request.headers.get("sec-fetch-mode") == "navigate"
        ):
            return _asked_again(local_path(here))
        return RedirectResponse(f"{LOGIN}?next={quote(here, safe='')}", status_code=303)


def _is_from_another_site(request: Request) -> bool:
    """By the headers of the browser. A link to a page is allowed: no GET of a page records anything."""
    # "same-site" is another origin too: another port of this machine, where anything may run.
    if request.headers.get("sec-fetch-site") not in {"cross-site", "same-site"}:
        return False
    is_link = (
        request.method == "GET"
        and request.headers.get("sec-fetch-mode") == "navigate"
        and request.headers.get("sec-fetch-dest", "document") == "document"
        and not request.url.path.startswith(API)
    )
    return not is_link


def _is_forwarded(request: Request) -> bool:
    # The default of nginx before 1.29.7: HTTP/1.0, and no header that names the client. No browser sends HTTP/1.0.
    if request.scope["http_version"] == "1.0":
        return True
    return any(name in FORWARDED or name.startswith(FORWARDED_PREFIX) for name in request.headers)


def _bearer_token(request: Request) -> str | None:
    kind, _, token = request.headers["authorization"].partition(" ")
    return token.strip() if kind.lower() == "bearer" else None


def csrf_of(request: Request) -> str:
    """For the hidden field `csrf` of a form."""
    return str(request.state.csrf)


def local_path(given: str) -> str:
    """The path to open after the login: always a path of this dashboard, whatever the link contains."""
    is_local = given.startswith("/") and not given.startswith(("//", "/\\")) and given.isprintable()
    return given if is_local else "/"


def _asked_again(here: str) -> Response:
    """For a link from another site: browsers send the SameSite=Strict cookie only after this page reloads."""
    address = escape(quote(here, safe="/?&=%:,+~.-_"))
    page = f'<!doctype html><title>dlq-handler</title><meta http-equiv="refresh" content="0;url={address}">'
    return Response(page, media_type="text/html")


def _replayed(body: bytes, receive: Receive) -> Receive:
    is_sent = False

    async def replay() -> Message:
        nonlocal is_sent
        if is_sent:
            return await receive()
        is_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
