"""The program of the commit in `old_program` works on the newest tables: it reads, writes and shows a note."""

import asyncio
import json
import os
import sys
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

from dlq_handler.database import migrate
from dlq_handler.database.engine import Database
from dlq_handler.database.migrate import SchemaVersion

ROOT = Path(__file__).resolve().parents[3]
COMMANDS = (
    "letters list",
    "letters groups",
    "audit list",
    "workers list",
    "brake status",
    "brake release --comment test",
)


def old_commit() -> str:
    lines = Path(__file__).with_name("old_program").read_text().splitlines()
    return "".join(line for line in lines if not line.startswith("#"))


async def test_the_program_before_the_newest_migration_works(
    store: Database, database: str, tmp_path: Path
) -> None:
    # As zip: Python 3.11.2 cannot filter what it takes out of a tar.
    archive = await run("git", "-C", str(ROOT), "archive", "--format=zip", old_commit(), "dlq_handler")
    with ZipFile(BytesIO(archive)) as files:
        files.extractall(tmp_path)
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "ATTUNE__DATABASE__URL": database}

    async def old(command: str) -> bytes:
        return await run(sys.executable, "-m", "dlq_handler", *command.split(), cwd=tmp_path, env=environment)

    migrated = json.loads(await old("migrate --output json"))
    assert (migrated["version"], bool(migrated["note"])) == (max(migrate.known_versions()), True)
    for command in COMMANDS:
        await old(command)
    found: SchemaVersion = await migrate.read_version(store)
    assert found.version == max(migrate.known_versions())


async def run(*command: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> bytes:
    process = await asyncio.create_subprocess_exec(*command, cwd=cwd, env=env, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0, command
    return out
