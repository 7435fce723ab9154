"""Answers that are no success, in Attune's shape: {error, code, details?}."""

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from sandbox.attune.database import DATABASE_AWAY

_CODES = {
    400: "BAD_REQUEST",
    401: "UNAUTHORIZED",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    422: "VALIDATION_ERROR",
    500: "INTERNAL_SERVER_ERROR",
    503: "SERVICE_UNAVAILABLE",
}


class ApiError(Exception):
    def __init__(self, status: int, error: str, details: Any = None) -> None:
        super().__init__(error)
        self.status, self.error, self.details = status, error, details


def answer_errors(app: FastAPI) -> None:
    """All errors have one shape."""

    async def as_json(_: Request, error: Exception) -> JSONResponse:
        match error:
            case ApiError():
                return _answer(error.status, error.error, error.details)
            case RequestValidationError():
                problems = [
                    {"field": ".".join(str(part) for part in problem["loc"][1:]), "message": problem["msg"]}
                    for problem in error.errors()
                ]
                # A body that is no JSON at all is a bad request; one that says the wrong thing is invalid.
                is_json = all(problem["type"] != "json_invalid" for problem in error.errors())
                return _answer(422 if is_json else 400, "the request is not valid", problems)
            case HTTPException():
                return _answer(error.status_code, str(error.detail))
            case _ if isinstance(error, DATABASE_AWAY):
                return _answer(503, f"the database is away ({type(error).__name__})")
            case _:
                return _answer(500, f"an error of ours ({type(error).__name__})")

    for kind in (ApiError, RequestValidationError, HTTPException, *DATABASE_AWAY, Exception):
        app.add_exception_handler(kind, as_json)


def _answer(status: int, error: str, details: Any = None) -> JSONResponse:
    body = {"error": error, "code": _CODES.get(status, "ERROR")}
    if details is not None:
        body["details"] = details
    return JSONResponse(body, status_code=status)
