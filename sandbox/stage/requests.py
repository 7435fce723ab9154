"""Ask the keeper of a running stage to do something; or become a client of one of its servers."""

import json
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from sandbox.clean_environment import clean_environment
from sandbox.stage.exits import EXIT_FAILED
from sandbox.stage.state import State


def ask(state: State, **request: str) -> int:
    """Print what the keeper says while it works; its exit code."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(state.socket)
        connection.sendall(json.dumps(request).encode() + b"\n")
        with connection.makefile() as answers:
            for line in answers:
                answer = json.loads(line)
                if "exit" in answer:
                    return int(answer["exit"])
                print(answer["line"], flush=True)
    print("the keeper ended before it answered; `./run logs keeper` may say why")
    return EXIT_FAILED


def become_client(state: State, name: str, arguments: Sequence[str]) -> NoReturn:
    client = state.clients[name]
    command = [*client.command, *arguments]
    if not Path(command[0]).exists():
        sys.exit(f"{command[0]} is not there: it comes with a package beside the server's; install that")
    if client.start_in:
        os.chdir(client.start_in)
    os.execve(command[0], command, clean_environment(client.environment))  # noqa: S606 (on purpose: signals and exit code are its own)


def show_log(log: Path, *, follow: bool) -> NoReturn:
    os.execvp("tail", ["tail", "-n", "+1", *(["-F"] if follow else []), str(log)])  # noqa: S606 (as above)
