"""Rules §1, Pausing: dead letters that cannot be recorded go back to the queue, and none is lost."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

import pytest

from sandbox.servers import PrivatePostgreSQL
from tests.crash.world import CrashWorld
from tests.support.eventually import eventually
from tests.support.sidecar import SidecarProcess

LETTERS = 50


async def test_letters_go_back_to_the_queue_while_the_database_is_away(
    world: CrashWorld, postgres: PrivatePostgreSQL
) -> None:
    dispatches = await world.schedule(LETTERS)
    async with world.sidecar(pause__database_outage_seconds="1") as sidecar:
        await postgres.kill()
        try:
            await world.dead_letter(dispatches)
            await eventually(lambda: all_are_back(world))
            assert "database" in await why_unready(sidecar)
        finally:
            await postgres.start()
        await world.settled_once(dispatches)
        await sidecar.wait_ready()
        await eventually(lambda: was_counted(sidecar, "database"))


async def was_counted(sidecar: SidecarProcess, link: str) -> bool:
    return (await sidecar.metrics())[f'dlq_handler_reconnects_total{{link="{link}"}}'] >= 1


@pytest.mark.parametrize(
    ("right", "named"),
    [
        ("UPDATE (status, result) ON execution", "execution"),
        # Needed by a trigger of the host that runs with our rights: no rehearsal of ours meets it.
        ("INSERT ON execution_history", "execution_history"),
    ],
)
async def test_a_right_taken_from_us_settles_nothing_and_is_named(
    world: CrashWorld, postgres: PrivatePostgreSQL, right: str, named: str
) -> None:
    async with a_plain_role(world, postgres) as (role, database):
        dispatches = await world.schedule(LETTERS)
        async with world.sidecar(database=database, pause__database_outage_seconds="1") as sidecar:
            await world.sql(f"REVOKE {right} FROM {role}")
            await world.dead_letter(dispatches)
            await eventually(lambda: all_are_back(world))
            assert "dlq-handler grants" in await why_unready(sidecar)
            put_off = sidecar.events("batch.delayed")
            assert put_off
            assert all(
                "dlq-handler grants" in event["error"] and named in event["error"] for event in put_off
            )
            await eventually(lambda: has_looked_again(sidecar))
            assert len(sidecar.events("intake.opened")) == 1, (
                "letters are not taken to find out whether they can be"
            )
            await world.sql(f"GRANT {right} TO {role}")
            await world.settled_once(dispatches)
            await sidecar.wait_ready()


@asynccontextmanager
async def a_plain_role(world: CrashWorld, postgres: PrivatePostgreSQL) -> AsyncIterator[tuple[str, str]]:
    """A role with exactly the rights that `dlq-handler grants` prints, and the database URL with it."""
    role = f"sidecar_{uuid.uuid4().hex[:8]}"
    await postgres.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'secret'")
    parts = urlsplit(world.database_url)
    url = urlunsplit(parts._replace(netloc=f"{role}:secret@{parts.hostname}:{parts.port}"))
    try:
        async with world.sidecar("administrator", start=False) as administrator:
            code, statements, complaint = await administrator.cli("grants", "--role", role)
            assert code == 0, complaint
        for statement in statements.splitlines():
            if statement.startswith(("GRANT", "CREATE")):
                await world.sql(statement)
        yield role, url
    finally:
        await world.sql(f"DROP OWNED BY {role} CASCADE")
        await postgres.execute(f"DROP ROLE {role}")


async def all_are_back(world: CrashWorld) -> bool:
    """All are ready in the queue, which has no consumer."""
    return await world.letters_ready() == LETTERS and await world.consumers() == 0


async def why_unready(sidecar: SidecarProcess) -> str:
    status, answer = await sidecar.readyz()
    assert status == 503
    return " ".join(check["detail"] for check in answer["checks"].values() if not check["ok"])


async def has_looked_again(sidecar: SidecarProcess) -> bool:
    """It has asked the database since it gave the letters back, and found the right still missing."""
    return "letters" not in await why_unready(sidecar)
