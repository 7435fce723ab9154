"""Mute the webhook for a while, or end that."""

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response

from dlq_handler.domain.operation import Mute
from dlq_handler.domain.state_version import mute_version
from dlq_handler.services.operating import Actor
from dlq_handler.store import mute as mute_store
from dlq_handler.surface.dashboard.pages.acts import (
    Act,
    Choice,
    Doing,
    Done,
    carry_out,
    chosen_seconds,
    confirm,
)
from dlq_handler.surface.dashboard.site import Site
from dlq_handler.surface.dashboard.words import moment

FOR = Choice(
    name="for_seconds",
    label="For how long",
    options=(("1800", "30 minutes"), ("7200", "2 hours"), ("28800", "8 hours"), ("86400", "1 day")),
)


async def mute_page(site: Site, request: Request) -> Response:
    seen = await mute_store.look(site.world.database)
    act, doing = _unmute(site, seen) if seen else _mute(site)
    if request.method == "POST":
        return await carry_out(site, request, act, doing)
    return await confirm(site, request, act)


def _mute(site: Site) -> tuple[Act, Doing]:
    act = Act(
        title="Mute notifications",
        happens=[
            "The webhook says nothing about any diagnosis until the time is over, whatever happens.",
            "Prometheus alerts, this page and the terminal go on as before. It can be ended at any time.",
        ],
        button="Mute notifications",
        version=mute_version(None),
        back=("/audit", "Audit"),
        here="/audit",
        choice=FOR,
    )

    async def doing(actor: Actor, reason: str, version: str, form: FormData) -> Done:
        _, mute = await site.world.operating.mute(
            actor, for_seconds=chosen_seconds(form, FOR), reason=reason, version=version
        )
        until = "" if mute is None else f" until {moment(mute.until, site.now)} UTC"
        return Done(title="Notifications are muted", lines=[f"Nobody is notified{until}."])

    return act, doing


def _unmute(site: Site, seen: Mute) -> tuple[Act, Doing]:
    act = Act(
        title="Unmute notifications",
        happens=[
            f"{seen.by} muted them until {moment(seen.until, site.now)} UTC: {seen.reason}.",
            "Afterwards the webhook tells every change of the diagnosis again.",
        ],
        button="Unmute notifications",
        version=mute_version(seen),
        back=("/audit", "Audit"),
        here="/audit",
    )

    async def doing(actor: Actor, reason: str, version: str, form: FormData) -> Done:  # noqa: ARG001  # a plain form
        await site.world.operating.unmute(actor, reason=reason, version=version)
        return Done(
            title="Notifications are on again", lines=["Every change of the diagnosis is told again."]
        )

    return act, doing
