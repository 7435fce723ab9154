"""The ui application: the guard, the API, the dashboard."""

from fastapi import FastAPI

from dlq_handler import __version__
from dlq_handler.surface.api.router import api_router
from dlq_handler.surface.dashboard.router import dashboard_router
from dlq_handler.surface.web.errors import LastResort, answer_errors
from dlq_handler.surface.web.guard import Guard
from dlq_handler.surface.web.guesses import GuessLimit
from dlq_handler.surface.web.login import login_router
from dlq_handler.surface.web.logouts import Logouts
from dlq_handler.surface.web.origins import Origins
from dlq_handler.surface.web.session import Sessions
from dlq_handler.surface.web.stamp import Stamp
from dlq_handler.surface.web.world import UiWorld


def ui_app(world: UiWorld) -> FastAPI:
    # No page of FastAPI's own: they load scripts from another host.
    app = FastAPI(
        title="dlq-handler",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/v1/openapi.json",
    )
    # For the page of an error, which may be shown before any route is reached.
    app.state.world = world
    sessions = Sessions(world.tokens)
    origins = Origins.of(host=world.host, external_url=world.external_url)
    guesses, logouts = GuessLimit(), Logouts(world.database)
    answer_errors(app)
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
    )
    app.add_middleware(LastResort)
    app.add_middleware(Stamp)
    return app
