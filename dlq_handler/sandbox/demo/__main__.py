"""Run the demo: exit 0 only if every promise it shows was kept; nothing is left running, also after Ctrl-C."""

import argparse
import asyncio
import contextlib
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from dlq_handler.sandbox.demo.story import StoryBroken, tell_story
from dlq_handler.sandbox.demo.telling import Teller
from dlq_handler.sandbox.servers import NoServer

EXIT_BROKEN = 1
EXIT_NO_SERVER = 69
EXIT_INTERRUPTED = 130


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run demo", description="Watch executions being rescued.")
    parser.add_argument(
        "--patience", type=float, default=60, metavar="SECONDS", help="how long to wait for the rescue (60)"
    )
    patience_seconds = parser.parse_args().patience
    teller = Teller()
    folder = Path(tempfile.mkdtemp(prefix="dlq-handler-demo-"))
    log = folder / "sidecar.log"
    kept, keep_log = False, True
    try:
        kept = asyncio.run(_until_told(teller, log, patience_seconds))
    except NoServer as error:
        print(error, file=sys.stderr)
        return EXIT_NO_SERVER
    except StoryBroken as error:
        print(error, file=sys.stderr)
        return EXIT_BROKEN
    except (KeyboardInterrupt, asyncio.CancelledError):
        keep_log = False
        teller.line("interrupted; everything that was started is gone")
        return EXIT_INTERRUPTED
    finally:
        if kept or not keep_log or not log.exists():
            shutil.rmtree(folder, ignore_errors=True)
        else:
            teller.line(f"the sidecar's log is kept in {log}")
    return 0 if kept else EXIT_BROKEN


async def _until_told(teller: Teller, log: Path, patience_seconds: float) -> bool:
    """SIGTERM and a closed terminal end the story as Ctrl-C does: with everything cleaned up."""
    story = asyncio.create_task(tell_story(teller, log, patience_seconds=patience_seconds), name="story")
    with contextlib.suppress(NotImplementedError):
        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, story.cancel)
    return await story


if __name__ == "__main__":
    sys.exit(main())
