"""The story in six acts, and what the auditor says of it."""

import time
from collections.abc import Sequence
from pathlib import Path

from sandbox.demo.act_4 import worker_is_retired
from sandbox.demo.acts_1_to_3 import attune_alone, letters_arrive, requests_are_repeated
from sandbox.demo.acts_5_and_6 import everything_breaks, work_flows
from sandbox.demo.attune_client import attune_client
from sandbox.demo.auditor_process import auditor
from sandbox.demo.promises import promises
from sandbox.demo.result import Ending, show_result
from sandbox.demo.view import View
from sandbox.demo.world import DemoFailed, World
from sandbox.stage.programs import ADMISSION_WORKS
from sandbox.stage.stage import Stage
from sandbox.times import SCALED, describe_briefly


async def play_demo(
    view: View, folder: Path, *, patience_seconds: float, sidecar_command: Sequence[str] | None
) -> bool:
    """True when the demo played to its end and every promise was kept."""
    async with Stage.open(
        folder,
        print_line=view.line,
        times=SCALED,
        cured=[ADMISSION_WORKS],
        sidecar_command=sidecar_command,
    ) as stage:
        began = time.monotonic()
        view.text(["", *describe_briefly(SCALED)])
        log = stage.log("sidecar").with_name("auditor.log")
        async with (
            auditor(stage.amqp_url, stage.database_url, log) as link,
            attune_client(stage.api_url, stage.api_token) as client,
        ):
            world = World(stage, client, link, view, patience_seconds=patience_seconds)
            broken: DemoFailed | None = None
            async with world.watched():
                try:
                    await _play(world)
                except DemoFailed as error:
                    broken = error
                    world.print_line(f"the story breaks off: {error}")
                    await world.settle()
                audit = await world.audit()
        # Before the stage is cleared, which takes a few seconds.
        return show_result(
            view,
            Ending(
                promises=promises(audit),
                broken=broken,
                first_rescue_at=world.first_rescue_at,
                story_seconds=time.monotonic() - began,
                logs=log.parent,
            ),
        )


async def _play(world: World) -> None:
    waiting = await attune_alone(world)
    await requests_are_repeated(world, waiting)
    await letters_arrive(world)
    await worker_is_retired(world)
    await everything_breaks(world)
    await work_flows(world)
