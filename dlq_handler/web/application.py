"""The ui application: the guard in front of the routers."""

from collections.abc import Sequence

from fastapi import APIRouter, FastAPI

from dlq_handler import __version__
from dlq_handler.web.errors import ErrorAnswers, ErrorPage, LastResort
from dlq_handler.web.guard import Guard, Origins
from dlq_handler.web.guesses import GuessLimit
from dlq_handler.web.login import login_router
from dlq_handler.web.session import Logouts, Sessions
from dlq_handler.web.stamp import Stamp
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
    errors.add_to(app)
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
