"""The ui application: the guard in front of the routers, the login, and the headers of every response."""

import secrets
from collections.abc import Sequence
from typing import Annotated
from urllib.parse import quote

import structlog
from fastapi import APIRouter, FastAPI, Form, Request
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dlq_handler import __version__
from dlq_handler.web.errors import RAISED, ErrorAnswers, ErrorPage, LastResort, Refused
from dlq_handler.web.guard import LOGIN, Guard, Origins, local_path
from dlq_handler.web.session import Logouts, Session, Sessions, delete_cookie, set_cookie
from dlq_handler.web.users import GuessLimit, Tokens
from dlq_handler.web.world import UiWorld


def guarded_app(world: UiWorld, routers: Sequence[APIRouter], *, error_page: ErrorPage) -> FastAPI:
    # Without FastAPI's own pages: they load scripts from another host.
    app = FastAPI(
        title="dlq-handler",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/v1/openapi.json",
    )
    errors = ErrorAnswers(error_page)
    sessions = Sessions(world.tokens)
    origins = Origins.of(host=world.options.host, external_url=world.options.external_url)
    guesses, logouts = GuessLimit(errors), Logouts(world.database)
    _answer_errors(app, errors)
    for router in routers:
        app.include_router(router)
    app.include_router(
        login_router(
            tokens=world.tokens, sessions=sessions, origins=origins, guesses=guesses, logouts=logouts
        )
    )
    # The last one added is called first: no request passes the guard, and its own errors are answered like others.
    app.add_middleware(
        Guard,
        tokens=world.tokens,
        sessions=sessions,
        origins=origins,
        guesses=guesses,
        logouts=logouts,
        errors=errors,
    )
    app.add_middleware(LastResort, errors=errors)
    app.add_middleware(Stamp)
    return app


def _answer_errors(app: FastAPI, errors: ErrorAnswers) -> None:
    async def answer_invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)  # noqa: S101  registered for it alone
        return await errors.answer_raised(request, Refused(422, _in_words(error)))

    for kind in RAISED:
        app.add_exception_handler(kind, errors.answer_raised)
    app.add_exception_handler(RequestValidationError, answer_invalid)


def _in_words(error: RequestValidationError) -> str:
    """Without the value: it may be a pasted secret."""
    problems = [
        # dlq-handler's validators write a complete sentence; pydantic puts two words before it.
        f"{'.'.join(str(part) for part in one['loc'][1:]) or 'body'}: {one['msg'].removeprefix('Value error, ')}"
        for one in error.errors()
    ]
    return "; ".join(problems)


HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not "no-referrer": with it browsers send forms with `Origin: null`, which dlq-handler refuses.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Stamp:
    """The outermost of all: every response, also that of a bug in the guard, has the request's id and `HEADERS`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # dlq-handler has no websockets
        request_id = Request(scope).state.request_id = secrets.token_hex(6)

        async def stamped(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers["X-Request-Id"] = request_id
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self._app(scope, receive, stamped)


log = structlog.get_logger()


def login_router(
    *, tokens: Tokens, sessions: Sessions, origins: Origins, guesses: GuessLimit, logouts: Logouts
) -> APIRouter:
    """Log in with a token, and out again. The form is the dashboard's page GET /login.

    `/login?refused=1` is where a wrong token leads back to.
    """
    router = APIRouter(include_in_schema=False)

    @router.post(LOGIN)
    async def log_in(
        request: Request, token: Annotated[str, Form()] = "", go_on: Annotated[str, Form(alias="next")] = "/"
    ) -> Response:
        too_many = await guesses.refuse(request)
        if too_many is not None:
            return too_many
        owner, there = tokens.owner_of(token.strip()), local_path(go_on)
        if owner is None:
            guesses.add(request)
            return RedirectResponse(f"{LOGIN}?refused=1&next={quote(there, safe='')}", status_code=303)
        log.info("session.started", name=owner.name, role=owner.role.value)
        answer = RedirectResponse(there, status_code=303)
        set_cookie(answer, sessions.begin(owner), is_secure=origins.is_secure)
        return answer

    @router.post("/logout")
    async def log_out(request: Request) -> Response:
        session: Session | None = getattr(request.state, "session", None)
        if session is not None:
            await logouts.end(session)
        answer = RedirectResponse(LOGIN, status_code=303)
        delete_cookie(answer, is_secure=origins.is_secure)
        return answer

    return router
