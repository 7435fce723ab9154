"""The commands of `./run` around a sandbox that stays: up, down, break, repair, status, logs, its servers' clients."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from sandbox.attune.defects import read_cured
from sandbox.stage import requests, up_and_down
from sandbox.stage.exits import EXIT_FAILED, EXIT_USAGE
from sandbox.stage.folder import log_of
from sandbox.stage.parts import PARTS, How
from sandbox.stage.programs import ADMISSION_WORKS

FOLDER_VARIABLE = "SANDBOX_FOLDER"
CLIENTS = {"psql": "psql", "rabbitmq": "rabbitmqctl", "dlq-handler": "dlq-handler"}
NOT_RUNNING = "the sandbox is not running; `./run up` starts it"


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}", file=sys.stderr)
        sys.exit(EXIT_USAGE)


def parser() -> Parser:
    made = Parser(prog="./run")
    commands = made.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start everything, and leave it running")
    up.add_argument("--times", choices=("scaled", "stock"), default="scaled", help="waiting times (scaled)")
    up.add_argument(
        "--cured",
        type=defects,
        default=ADMISSION_WORKS,
        metavar="D1,D2",
        help=f"defects of Attune to leave out (default: {ADMISSION_WORKS}, with which core.slow runs)",
    )
    up.add_argument(
        "--no-timeout-monitor",
        action="store_true",
        help="switch Attune's own timeout monitor off, as the demo does",
    )
    up.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="settings of the sidecar, but for addresses and times",
    )
    commands.add_parser("down", help="end it all")
    commands.add_parser("status", help="what runs")
    breaking = commands.add_parser("break", help="break a part")
    breaking.add_argument("part", choices=PARTS)
    breaking.add_argument(
        "--how", choices=[str(how) for how in How], default=str(How.KILL), help="kill (default), stop or hang"
    )
    repairing = commands.add_parser("repair", help="bring a part back")
    repairing.add_argument("part", choices=PARTS)
    logs = commands.add_parser("logs", help="the log of a part")
    logs.add_argument("part", choices=(*PARTS, up_and_down.KEEPER))
    logs.add_argument("-f", "--follow", action="store_true", help="go on with what is written")
    return made


def defects(text: str) -> str:
    """Checked here, before anything is started for nothing."""
    try:
        read_cured(text)
    except ValueError as unknown:
        raise argparse.ArgumentTypeError(str(unknown)) from unknown
    return text


def readable(file: Path) -> Path:
    """Its whole path: the sidecar and its commands start in other folders. ValueError, before anything is started."""
    whole = file.expanduser().resolve()
    try:
        whole.open("rb").close()
    except OSError as refused:
        raise ValueError(
            f"--config: {whole} cannot be read ({refused.strerror}); wanted a YAML file with settings of the sidecar"
        ) from refused
    return whole


def sandbox_folder() -> Path:
    """`.sandbox/` of this clone; tests have their own."""
    named = os.environ.get(FOLDER_VARIABLE)
    return Path(named) if named else Path(__file__).resolve().parents[2] / ".sandbox"


def main(arguments: Sequence[str]) -> int:
    folder = sandbox_folder()
    if arguments and arguments[0] in CLIENTS:
        # Not parsed: what follows is the client's business, -h included.
        if state := up_and_down.running(folder):
            requests.become_client(state, CLIENTS[arguments[0]], arguments[1:])
        return not_running()
    known = parser()
    chosen = known.parse_args(arguments)
    if chosen.command == "up":
        try:
            config = readable(chosen.config) if chosen.config else None
        except ValueError as unreadable:
            known.error(str(unreadable))
        monitor = ["--no-timeout-monitor"] if chosen.no_timeout_monitor else []
        reading = ["--config", str(config)] if config else []
        options = ["--times", chosen.times, "--cured", chosen.cured, *monitor, *reading]
        return up_and_down.up(folder, options, config)
    if chosen.command == "down":
        return up_and_down.down(folder)
    if chosen.command == "logs":
        # Also those of a sandbox that did not start, or is down again.
        log = log_of(folder, chosen.part)
        return requests.show_log(log, follow=chosen.follow) if log.exists() else not_running()
    state = up_and_down.running(folder)
    if state is None:
        return not_running()
    if not state.is_up:
        print("the sandbox is still starting; `./run up` waits for it", file=sys.stderr)
        return EXIT_FAILED
    request = {name: str(value) for name, value in vars(chosen).items()}
    return requests.ask(state, **request)


def not_running() -> int:
    print(NOT_RUNNING, file=sys.stderr)
    return EXIT_FAILED


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except BrokenPipeError:
        # `./run up | head`: the reader has ended. Python would report the error again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
