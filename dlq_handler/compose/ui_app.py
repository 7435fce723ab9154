"""The ui application: the guard, the API, the dashboard."""

from functools import partial

from fastapi import FastAPI

from dlq_handler import __version__
from dlq_handler.api.router import api_router
from dlq_handler.dashboard.errors import error_page
from dlq_handler.dashboard.router import dashboard_router
from dlq_handler.web.errors import ErrorAnswers, LastResort
from dlq_handler.web.guard import Guard, Origins
from dlq_handler.web.guesses import GuessLimit
from dlq_handler.web.login import login_router
from dlq_handler.web.session import Logouts, Sessions
from dlq_handler.web.stamp import Stamp
from dlq_handler.web.world import UiWorld


def ui_app(world: UiWorld) -> FastAPI:
    # No page of FastAPI's own: they load scripts from another host.
    app = FastAPI(
        title="dlq-handler",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/v1/openapi.json",
    )
    errors = ErrorAnswers(partial(error_page, environment=world.environment))
    sessions = Sessions(world.tokens)
    origins = Origins.of(host=world.host, external_url=world.external_url)
    guesses, logouts = GuessLimit(errors), Logouts(world.database)
    errors.add_to(app)
    app.include_router(api_router(world))
    app.include_router(
        login_router(
            tokens=world.tokens, sessions=sessions, origins=origins, guesses=guesses, logouts=logouts
        )
    )
    app.include_router(dashboard_router(world))
    # The last one added is the first to be asked: nothing passes the guard, and its own faults are answered as others.
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
