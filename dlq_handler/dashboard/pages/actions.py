"""Operating: a page of its own for each action, which works without a script.

It shows the effect, the number of dead letters and what cannot be undone, and asks for a comment; the button names the
action. Users who may only read see which role is needed. The next page shows the result, with a link to the audit.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response

from dlq_handler.dashboard.shell import render
from dlq_handler.dashboard.site import Site
from dlq_handler.operations.operation import Actor
from dlq_handler.operations.operations import LONGEST_COMMENT, Impossible
from dlq_handler.web.errors import Refused
from dlq_handler.web.guard import csrf_of
from dlq_handler.web.users import needs_operate, user_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How long; the first one is chosen."""

    name: str
    label: str
    options: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    title: str
    happens: Sequence[str]
    """What will happen, to how many, and what cannot be undone."""
    button: str
    version: str
    """Of the state that this page shows: when another one holds by then, nothing is done."""
    back: tuple[str, str]
    here: str | None = None
    choice: Choice | None = None
    impossible: str | None = None
    """Why it cannot be done at all; then there is no button."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    title: str
    lines: Sequence[str]


Doing = Callable[[Actor, str, str, FormData], Awaitable[Done]]
"""Actor, reason, version, and the form for whatever else was chosen."""


async def confirm(
    site: Site, request: Request, action: Action, *, problem: str | None = None, comment: str = ""
) -> Response:
    user = user_of(request)
    context = {
        "action": action,
        "may": user.may_operate,
        "user": user,
        "csrf": csrf_of(request),
        "problem": problem,
        "comment": comment,
        "longest": LONGEST_COMMENT,
    }
    shell = site.shell(request, action.title, here=action.here)
    return render("action.html", shell, context, status=422 if problem else 200)


async def carry_out(site: Site, request: Request, action: Action, doing: Doing) -> Response:
    needs_operate(request)
    if action.impossible is not None:
        raise Refused(409, f"{action.impossible} Nothing was done.")
    form = await request.form()
    comment = str(form.get("comment", "")).strip()
    if not comment or len(comment) > LONGEST_COMMENT:
        wanted = f"A reason is needed, of at most {LONGEST_COMMENT} characters: the audit shows it. Nothing was done."
        return await confirm(site, request, action, problem=wanted, comment=comment[:LONGEST_COMMENT])
    try:
        done = await doing(user_of(request).actor, comment, str(form.get("version", "")), form)
    except Impossible as error:
        raise Refused(409, f"{error}. Nothing was done.") from error
    context = {"done": done, "back": action.back}
    return render("done.html", site.shell(request, done.title, here=action.here), context)


def chosen_seconds(form: FormData, choice: Choice) -> float:
    given = str(form.get(choice.name, ""))
    if given not in [value for value, _ in choice.options]:
        raise Refused(422, f"{choice.label}: choose one of those that the page offers. Nothing was done.")
    return float(given)
