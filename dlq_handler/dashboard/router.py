"""The dashboard's routes: each asks one page module, and answers with HTML that needs no script."""

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.responses import FileResponse, Response

from dlq_handler.dashboard.pages.actions import release_page, reprocess_group_page, reprocess_letter_page
from dlq_handler.dashboard.pages.audit import audit_page
from dlq_handler.dashboard.pages.execution import execution_page
from dlq_handler.dashboard.pages.flows import flow_page, flows_page
from dlq_handler.dashboard.pages.groups import group_page, groups_page
from dlq_handler.dashboard.pages.letters import letter_page, letters_page, raw_body_page
from dlq_handler.dashboard.pages.now import now_page
from dlq_handler.dashboard.pages.queues import queues_page
from dlq_handler.dashboard.pages.topology import topology_page
from dlq_handler.dashboard.pages.workers import worker_page, workers_page
from dlq_handler.dashboard.shell import STATIC, render
from dlq_handler.dashboard.site import Site
from dlq_handler.web.errors import Refused
from dlq_handler.web.guard import local_path

Number = Annotated[int, Path(ge=1, le=2**63 - 1)]
WorkerNumber = Annotated[int, Path(ge=-1, le=2**63 - 1)]
FlowId = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
GroupId = Annotated[str, Path(pattern=r"^[0-9a-f]{10}$")]

Page = Callable[[Site, Request], Awaitable[Response]]


async def login_page(site: Site, request: Request) -> Response:
    """The form that asks for a token. web/application.py checks the token."""
    context = {
        "go_on": local_path(request.query_params.get("next", "/")),
        "is_refused": "refused" in request.query_params,
        "needs_none": not site.world.tokens.are_needed,
    }
    # No diagnosis in the title: a user without a token must not read it.
    return render("login.html", site.shell(request, "Log in · dlq-handler"), context)


PLAIN: dict[str, Page] = {
    "/": now_page,
    "/letters": letters_page,
    "/groups": groups_page,
    "/workers": workers_page,
    "/queues": queues_page,
    "/flows": flows_page,
    "/topology": topology_page,
    "/audit": audit_page,
    "/login": login_page,
}
ACTIONS: dict[str, Page] = {"/brake/release": release_page}

_KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def dashboard_router(site: Site) -> APIRouter:
    router = APIRouter(include_in_schema=False)
    for address, page in PLAIN.items():
        router.add_api_route(address, _bound(site, page), methods=["GET"], response_model=None)
    for address, page in ACTIONS.items():
        router.add_api_route(address, _bound(site, page), methods=["GET", "POST"], response_model=None)

    @router.get("/letters/{letter_id}")
    async def letter(request: Request, letter_id: Number) -> Response:
        return await letter_page(site, request, letter_id)

    @router.post("/letters/{letter_id}/body")
    async def raw_body(request: Request, letter_id: Number) -> Response:
        return await raw_body_page(site, request, letter_id)

    @router.api_route("/letters/{letter_id}/reprocess", methods=["GET", "POST"])
    async def reprocess_letter(request: Request, letter_id: Number) -> Response:
        return await reprocess_letter_page(site, request, letter_id)

    @router.get("/groups/{group_id}")
    async def group(request: Request, group_id: GroupId) -> Response:
        return await group_page(site, request, group_id)

    @router.api_route("/groups/{group_id}/reprocess", methods=["GET", "POST"])
    async def reprocess_group(request: Request, group_id: GroupId) -> Response:
        return await reprocess_group_page(site, request, group_id)

    @router.get("/executions/{execution_id}")
    async def execution(request: Request, execution_id: Number) -> Response:
        return await execution_page(site, request, execution_id)

    @router.get("/workers/{worker_id}")
    async def worker(request: Request, worker_id: WorkerNumber) -> Response:
        return await worker_page(site, request, worker_id)

    @router.get("/flows/{flow_id}")
    async def flow(request: Request, flow_id: FlowId) -> Response:
        return await flow_page(site, request, flow_id)

    @router.get("/static/{name}")
    async def static(name: str) -> Response:
        # By name among the existing files: no path from a request is opened.
        file = {one.name: one for one in STATIC.iterdir()}.get(name)
        if file is None:
            raise Refused(404, "There is no such file.")
        # For a year: the address changes with the files.
        headers = {"Cache-Control": "public, max-age=31536000, immutable"}
        return FileResponse(file, media_type=_KINDS.get(file.suffix), headers=headers)

    return router


def _bound(site: Site, page: Page) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        await site.wait_for_view()
        return await page(site, request)

    return answer
