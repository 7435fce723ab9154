"""Log in with a token, and out again. The form itself is the dashboard's page GET /login."""

from typing import Annotated
from urllib.parse import quote

import structlog
from fastapi import APIRouter, Form, Request
from starlette.responses import RedirectResponse, Response

from dlq_handler.web.guard import LOGIN, Origins, local_path
from dlq_handler.web.guesses import GuessLimit
from dlq_handler.web.session import Logouts, Session, Sessions, forget, keep
from dlq_handler.web.users import Tokens

log = structlog.get_logger()


def login_router(
    *, tokens: Tokens, sessions: Sessions, origins: Origins, guesses: GuessLimit, logouts: Logouts
) -> APIRouter:
    """`/login?refused=1` is where a wrong token leads back to."""
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
        keep(answer, sessions.begin(owner), is_secure=origins.is_secure)
        return answer

    @router.post("/logout")
    async def log_out(request: Request) -> Response:
        session: Session | None = getattr(request.state, "session", None)
        if session is not None:
            await logouts.end(session)
        answer = RedirectResponse(LOGIN, status_code=303)
        forget(answer, is_secure=origins.is_secure)
        return answer

    return router
