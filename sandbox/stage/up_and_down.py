"""`./run up` and `./run down`: start the keeper, print its log until all is healthy, and end it.

Only the standard library and nothing of the servers, so that a command shows something at once.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from sandbox.clean_environment import clean_environment
from sandbox.stage.exits import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_TAKEN
from sandbox.stage.folder import Folder, log_of
from sandbox.stage.guide import guide
from sandbox.stage.state import State

KEEPER = "keeper"
LOOK_SECONDS = 0.1
END_SECONDS = 30
UNSEEN_SECONDS = 10


def running(folder: Path) -> State | None:
    """The state of the stage whose keeper lives; None for one that was left behind, too."""
    state = State.read(folder)
    return state if state and state.keeper.is_alive else None


def up(folder: Path, options: Sequence[str], config: Path | None) -> int:
    """Returns when everything is healthy, or the keeper has given up. Where it runs already, says where.

    `options`: the keeper's. `config`: the file in them; EXIT_FAILED where a sidecar runs that does not read it.
    """
    if (state := running(folder)) and state.is_up:
        print("the sandbox is already running; `./run down` ends it")
        print(guide(state))
        return reads(state, config)
    print(f"the sandbox is {'being started by another `./run up`' if state else 'starting'}", flush=True)
    log = log_of(folder, KEEPER)
    log.parent.mkdir(parents=True, exist_ok=True)
    said_before = log.stat().st_size if log.exists() else 0
    keeper = None if state else start_keeper(folder, options, log)
    try:
        state = await_up(folder, keeper, log, said_before)
    except KeyboardInterrupt:
        if keeper:
            print("interrupted: taking it down")
            keeper.terminate()
            keeper.wait()
        return EXIT_INTERRUPTED
    if state is None:
        print(f"the sandbox did not start; the whole log: {log}", file=sys.stderr)
        return (keeper and keeper.poll()) or EXIT_FAILED
    print(guide(state))
    return reads(state, config)


def reads(state: State, config: Path | None) -> int:
    """EXIT_FAILED if the running sandbox was started without the named file."""
    if config is None or state.config == str(config):
        return 0
    print(f"it does not read {config}: `./run down`, then `./run up --config {config}`", file=sys.stderr)
    return EXIT_FAILED


def await_up(folder: Path, keeper: "subprocess.Popen[bytes] | None", log: Path, shown: int) -> State | None:
    """Show what the keeper says until all is healthy; None when it has given up. Without one, another's is awaited."""
    seen = time.monotonic()
    while True:
        ended = keeper.poll() if keeper else None
        state = running(folder)
        shown = show(log, shown)
        if state and state.is_up:
            return state
        if ended == EXIT_TAKEN:
            keeper = None  # another `./run up` was quicker
        elif ended is not None:
            return None
        if keeper or state:
            seen = time.monotonic()
        elif time.monotonic() > seen + UNSEEN_SECONDS:
            return None  # another's keeper writes its state down at once, and removes it when it gives up
        time.sleep(LOOK_SECONDS)


def start_keeper(folder: Path, options: Sequence[str], log: Path) -> "subprocess.Popen[bytes]":
    """In a session of its own: neither Ctrl-C nor the end of this terminal reaches it."""
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "sandbox.stage.keeper", str(folder), *options],
            env=clean_environment({}),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def show(log: Path, shown: int) -> int:
    """Print what was written since; how far that is."""
    with log.open("rb") as file:
        file.seek(shown)
        text = file.read()
    sys.stdout.write(text.decode(errors="replace"))
    sys.stdout.flush()
    return shown + len(text)


def down(folder: Path) -> int:
    """Returns when every process has ended, also those that a killed keeper left."""
    state = State.read(folder)
    if state is None:
        print("nothing is running")
        return 0
    if state.keeper.is_alive:
        for number in (signal.SIGTERM, signal.SIGKILL):
            state.keeper.send(number)
            if happens(lambda: not state.keeper.is_alive):
                break
    if State.read(folder):
        # It was killed, now or earlier: taking the folder clears it.
        with Folder.take(folder, print_line=print):
            pass
    happens(lambda: not any(mark.is_alive for mark in state.processes.values()))
    left = [part for part, mark in state.processes.items() if mark.is_alive]
    if left:
        print(f"still running: {', '.join(left)}", file=sys.stderr)
        return EXIT_FAILED
    print(f"everything has ended; the logs stay in {log_of(folder, KEEPER).parent}")
    return 0


def happens(fact: Callable[[], bool]) -> bool:
    end = time.monotonic() + END_SECONDS
    while not fact():
        if time.monotonic() > end:
            return False
        time.sleep(LOOK_SECONDS)
    return True
