"""What a role may do: reading is for everybody who is let in, steering and raw bodies are for `operate`."""

from starlette.requests import Request

from dlq_handler.surface.web.errors import Refused
from dlq_handler.surface.web.visitor import visitor_of


def needs_operate(request: Request) -> None:
    visitor = visitor_of(request)
    if not visitor.may_operate:
        raise Refused(
            403,
            f"This is for the role operate; {visitor.name} has the role {visitor.role.value}. Whoever writes "
            f"dlq_handler.ui.tokens gives roles.",
        )
