"""Run a program to its end and take what it printed. It does not outlive the wait for it."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox.server_programs.account import Account
from sandbox.server_programs.errors import ProgramFailed

COMPLAINT_CHARACTERS = 1500
ROOT_FOLDER = Path("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A server's own command line for people: the program, and the variables that lead it to that server."""

    command: Sequence[str]
    environment: Mapping[str, str]
    start_in: str | None = None
    """The folder that relative paths in its settings count from; None: wherever it is called."""


async def output_of(
    *command: str,
    environment: Mapping[str, str] = os.environ,
    folder: Path = ROOT_FOLDER,
    account: Account | None = None,
    timeout: float = 600,
) -> str:
    """What it printed; ProgramFailed with the end of its complaint."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env={**environment, "LC_ALL": "C"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=[] if account else None,
    )
    try:
        async with asyncio.timeout(timeout):
            output, complaint = await process.communicate()
    except BaseException:
        # Cancelled or too slow: without this it would go on writing into a folder that is being removed.
        if process.returncode is None:
            process.kill()
            await process.communicate()
        raise
    if process.returncode != 0:
        printed = (output + complaint).decode(errors="replace").strip()[-COMPLAINT_CHARACTERS:]
        raise ProgramFailed(f"`{command[0]} … {command[-1]}` failed: {printed}")
    return output.decode(errors="replace")
