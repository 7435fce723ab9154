"""Run the demo: exit 0 only if every promise was kept. Nothing is left running, however it ends."""

import argparse
import asyncio
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox.clean_environment import drop_other_servers
from sandbox.demo.view import View, open_view

EXIT_BROKEN = 1
EXIT_NO_SERVER = 69


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="./run demo", description="Watch executions being rescued, in six acts."
    )
    parser.add_argument(
        "--patience", type=float, default=45, metavar="SECONDS", help="how long to wait for each fact (45)"
    )
    # For the tests that break it on purpose.
    parser.add_argument("--sidecar", type=shlex.split, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    drop_other_servers()
    view = open_view(began=time.monotonic())
    view.line("dlq-handler: what happens to executions when workers disappear, in six acts")
    folder = Path(tempfile.mkdtemp(prefix="dlq-handler-demo-"))
    code = EXIT_BROKEN
    try:
        code = asyncio.run(_play_until_signal(view, folder, arguments.patience, arguments.sidecar))
    finally:
        if code == EXIT_BROKEN:
            view.line(f"all logs are kept in {folder / 'logs'}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return code


@dataclass(slots=True)
class Interruption:
    """A signal or a closed output: the demo ends as after Ctrl-C, with everything cleaned up."""

    story: asyncio.Task[int]
    code: int | None = None

    def by(self, number: signal.Signals) -> None:
        # Once: a second one must not stop the cleaning up.
        if self.code is None:
            self.code = 128 + number
            self.story.cancel()


async def _play_until_signal(
    view: View, folder: Path, patience_seconds: float, sidecar_command: Sequence[str] | None
) -> int:
    story = asyncio.create_task(_play(view, folder, patience_seconds, sidecar_command), name="story")
    interruption = Interruption(story)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, interruption.by, number)
    view.on_closed = lambda: interruption.by(signal.SIGPIPE)
    await asyncio.wait([story])
    if interruption.code is not None:
        view.line("interrupted; every process that was started has ended")
        return interruption.code
    return story.result()


async def _play(
    view: View, folder: Path, patience_seconds: float, sidecar_command: Sequence[str] | None
) -> int:
    # Only now: they take longer to import than the audience should have to wait for the first line.
    from sandbox.demo.auditor_process import AuditorEnded  # noqa: PLC0415  after the first line
    from sandbox.demo.story import play_demo  # noqa: PLC0415  after the first line
    from sandbox.demo.world import DemoFailed  # noqa: PLC0415  after the first line
    from sandbox.servers import NoServer  # noqa: PLC0415  after the first line
    from sandbox.stage.part import PartFailed  # noqa: PLC0415  after the first line

    try:
        is_kept = await play_demo(
            view, folder, patience_seconds=patience_seconds, sidecar_command=sidecar_command
        )
    except NoServer as error:
        view.line(str(error))
        return EXIT_NO_SERVER
    except (PartFailed, AuditorEnded, DemoFailed) as error:
        view.line(f"the demo cannot go on: {error}")
        return EXIT_BROKEN
    return 0 if is_kept else EXIT_BROKEN


if __name__ == "__main__":
    sys.exit(main())
