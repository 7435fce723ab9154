"""Answers to requests that fail: JSON for programs, a page for people, both with the request's id and what to do.

The dashboard renders the page: the composition passes its function to `ErrorAnswers`.
"""

from collections.abc import Callable

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dlq_handler.errors import Contended, Unavailable
from dlq_handler.operations.operations import Changed, Impossible

RETRY_SECONDS = 5

ErrorPage = Callable[[Request, int, str, str], Response]
"""Renders status, title and text of an error for people."""

TITLES = {
    400: "Not understood",
    401: "No valid token",
    403: "Not allowed",
    404: "Not here",
    405: "Not that way",
    409: "It has changed",
    413: "Too large",
    415: "Not JSON",
    422: "Not valid",
    500: "Internal error",
    503: "Not now",
}

log = structlog.get_logger()


class Refused(HTTPException):
    """A route refuses a request, with an explanation. `more` goes into the JSON of the API."""

    def __init__(self, status: int, text: str, **more: object) -> None:
        super().__init__(status, text)
        self.text, self.more = text, more


RAISED = (HTTPException, Changed, Impossible, Unavailable, Contended)
"""What routes raise on purpose. `Refused` is an `HTTPException`."""


class ErrorAnswers:
    def __init__(self, page: ErrorPage) -> None:
        self._page = page

    def answer(self, request: Request, status: int, title: str, text: str, **more: object) -> Response:
        """`more` goes into the JSON of the API."""
        if request.url.path.startswith("/api/"):
            request_id = getattr(request.state, "request_id", None)
            error = {"status": status, "title": title, "detail": text, "request_id": request_id, **more}
            return JSONResponse({"error": error}, status_code=status)
        return self._page(request, status, title, text)

    def answer_unforeseen(self, request: Request) -> Response:
        return self._with_usual_title(request, 500, _usual(500, ""))

    async def answer_raised(self, request: Request, error: Exception) -> Response:
        """Of the errors `RAISED`."""
        match error:
            case Refused():
                answer = self._with_usual_title(request, error.status_code, error.text, **error.more)
                answer.headers.update(error.headers or {})
            case Changed():
                answer = self._with_usual_title(
                    request, 409, f"{error}. Nothing was done.", version=error.version
                )
            case Impossible():
                answer = self._with_usual_title(request, 409, f"{error}. Nothing was done.")
            case HTTPException():
                text = _usual(error.status_code, str(error.detail))
                answer = self._with_usual_title(request, error.status_code, text)
                answer.headers.update(error.headers or {})
            case _:
                text = f"{_with_full_stop(str(error))} Nothing was done; try again in a moment."
                answer = self._with_usual_title(request, 503, text)
                answer.headers["Retry-After"] = str(RETRY_SECONDS)
        return answer

    def _with_usual_title(self, request: Request, status: int, text: str, **more: object) -> Response:
        return self.answer(request, status, TITLES.get(status, "Refused"), text, **more)


class LastResort:
    """Answers unforeseen errors of routes and of the guard: the log line and the answer carry the request's id."""

    def __init__(self, app: ASGIApp, *, errors: ErrorAnswers) -> None:
        self._app, self._errors = app, errors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def noted(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except ClientDisconnect:
            raise  # no client is left to answer
        except Exception:  # the edge: a bug in one page must neither end the others nor show its insides
            request = Request(scope)
            # The path and never the query: people search for ids and names there.
            log.exception("request.failed", request_id=request.state.request_id, path=scope["path"])
            if has_begun:
                raise
            await self._errors.answer_unforeseen(request)(scope, receive, send)


def _with_full_stop(sentence: str) -> str:
    """Some errors end with a question mark."""
    return sentence if sentence.endswith((".", "?", "!")) else f"{sentence}."


def _usual(status: int, detail: str) -> str:
    match status:
        case 404:
            return "There is no such page. The address may be mistyped."
        case 405:
            return "This address does not support this HTTP method."
        case 500:
            return "Search the log of this replica for this request's id. Nothing is lost; try again."
        case _:
            return detail
