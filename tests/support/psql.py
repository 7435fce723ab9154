"""psql, as an administrator runs a printed script: it stops at the first error."""

import asyncio
from dataclasses import dataclass

from sandbox.clean_environment import clean_environment
from sandbox.server_programs.errors import SourceUnavailable
from sandbox.server_programs.postgresql import PostgreSQLPrograms


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    code: int
    error: str


async def apply_script(url: str, script: str) -> Applied:
    programs = await _programs()
    process = await asyncio.create_subprocess_exec(
        str(programs.client),
        "--no-psqlrc",
        "--quiet",
        "--set=ON_ERROR_STOP=1",
        "--file=-",
        url,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=clean_environment({"LD_LIBRARY_PATH": programs.library_path} if programs.library_path else {}),
    )
    async with asyncio.timeout(60):
        _, error = await process.communicate(script.encode())
    return Applied(code=process.returncode or 0, error=error.decode())


async def _programs() -> PostgreSQLPrograms:
    try:
        return PostgreSQLPrograms.on_this_machine()
    except SourceUnavailable:
        return await PostgreSQLPrograms.of_packages()
