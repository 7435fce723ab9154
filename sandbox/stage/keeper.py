"""The process that holds the stage of `./run up`: starts everything, then does what the other commands ask for.

They ask through a Unix socket: one line of JSON in, lines to print and an exit code back. SIGTERM takes the stage
down. However this process ends, everything on the stage ends with it.
"""

import argparse
import asyncio
import contextlib
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import assert_never

from sandbox.servers import NoServer
from sandbox.stage.exits import EXIT_FAILED, EXIT_NO_SERVER, EXIT_TAKEN
from sandbox.stage.folder import FolderTaken, remove_socket, socket_in
from sandbox.stage.part import PartFailed
from sandbox.stage.parts import ATTUNE, PARTS, How
from sandbox.stage.programs import WITHOUT_TIMEOUT_MONITOR
from sandbox.stage.stage import Stage
from sandbox.times import Times

PrintLine = Callable[[str], None]


async def keep(
    folder: Path,
    *,
    times: Times,
    cured: list[str],
    attune_settings: Mapping[str, str],
    config: Path | None,
    print_line: PrintLine,
) -> None:
    """Until SIGTERM."""
    async with Stage.open(
        folder,
        print_line=print_line,
        times=times,
        cured=cured,
        attune_settings=attune_settings,
        config=config,
    ) as stage:
        print_line("starting Attune's parts and the sidecar")
        await stage.start(*ATTUNE, "sidecar")
        async with listening(stage) as socket:
            stage.folder.record(is_up=True, socket=str(socket))
            print_line("all parts are healthy")
            await asyncio.Event().wait()


@asynccontextmanager
async def listening(stage: Stage) -> AsyncIterator[Path]:
    socket = socket_in(stage.folder.path)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def reply(**fields: object) -> None:
            writer.write(json.dumps(fields).encode() + b"\n")

        # The client may have ended before the answer. Its request is carried out anyway.
        with contextlib.suppress(OSError):
            code = await do(stage, json.loads(await reader.readline()), lambda line: reply(line=line))
            reply(exit=code)
            writer.close()
            await writer.wait_closed()

    try:
        async with await asyncio.start_unix_server(answer, socket):
            yield socket
    finally:
        remove_socket(socket)


async def do(stage: Stage, request: dict[str, str], print_line: PrintLine) -> int:
    """The exit code for the command that asks."""
    began = time.monotonic()
    part = request.get("part", "")
    try:
        match request["command"]:
            case "break":
                await break_part(stage, part, How(request["how"]), print_line)
            case "repair":
                await stage.repair(part, print_line=print_line)
                print_line(f"{part} is healthy after {time.monotonic() - began:.1f} s")
            case "status":
                for line in status(stage):
                    print_line(line)
            case other:
                raise ValueError(f"unknown command {other!r}")
    except PartFailed as failed:
        print_line(str(failed))
        return EXIT_FAILED
    return 0


async def break_part(stage: Stage, part: str, how: How, print_line: PrintLine) -> None:
    if not stage.is_running(part):
        print_line(f"{part} is down already; `./run repair {part}` starts it")
        return
    match how:
        case How.KILL:
            await stage.kill(part)
            result = "killed (SIGKILL): it finished nothing and closed no connection"
        case How.STOP:
            await stage.stop(part)
            result = "stopped (SIGTERM): it ended by itself"
        case How.HANG:
            await stage.hang(part)
            result = "frozen (SIGSTOP): it keeps its connections and does nothing"
        case _:
            assert_never(how)
    print_line(f"{part} is {result}; `./run repair {part}` brings it back")


def status(stage: Stage) -> list[str]:
    def of(part: str) -> str:
        process = stage.process(part)
        if process is None:
            return "down"
        return f"hangs, process {process.pid}" if process.is_hung else f"runs, process {process.pid}"

    return [f"{part:<14} {of(part):<26} {stage.log(part)}" for part in PARTS]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--times", default="scaled")
    parser.add_argument("--cured", default="")
    parser.add_argument("--no-timeout-monitor", action="store_true")
    parser.add_argument("--config", type=Path)
    chosen = parser.parse_args()
    began = time.monotonic()

    def print_line(line: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {line}", flush=True)

    async def until_asked_to_end() -> None:
        cured = [defect for defect in chosen.cured.split(",") if defect]
        attune_settings = WITHOUT_TIMEOUT_MONITOR if chosen.no_timeout_monitor else {}
        keeping = asyncio.create_task(
            keep(
                chosen.folder,
                times=Times.named(chosen.times),
                cured=cured,
                attune_settings=attune_settings,
                config=chosen.config,
                print_line=print_line,
            )
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, keeping.cancel)
        await keeping

    try:
        asyncio.run(until_asked_to_end())
    except FolderTaken as taken:
        print_line(str(taken))
        return EXIT_TAKEN
    except NoServer as missing:
        print_line(str(missing))
        return EXIT_NO_SERVER
    except PartFailed as failed:
        print_line(str(failed))
        return EXIT_FAILED
    except asyncio.CancelledError:
        print_line("down")
    return 0


if __name__ == "__main__":
    sys.exit(main())
