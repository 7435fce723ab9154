"""After a kill of the database every surface says that it is unreachable, since when, and nothing of the driver."""

from datetime import UTC, datetime

import httpx

from sandbox.servers import PrivatePostgreSQL
from tests.crash.world import CrashWorld
from tests.support.eventually import eventually
from tests.support.sidecar import SidecarProcess

HEADLINE = "The database is unreachable"
# A word of the driver or of the library around it.
RAW = (
    "InternalClientError",
    "InterfaceError",
    "switch to state",
    "ConnectionDoesNotExist",
    "asyncpg",
    "sqlalchemy",
)


async def test_every_surface_says_that_the_database_is_unreachable(
    world: CrashWorld, postgres: PrivatePostgreSQL
) -> None:
    # No observation follows in this test: the answer comes from the lost connection alone.
    async with world.sidecar(ui__refresh_seconds="300") as sidecar:

        async def is_healthy() -> bool:
            answer = {one["check"]: one["health"] for one in await sidecar.diagnoses()}
            return answer.get("database") == "ok"

        await eventually(is_healthy, timeout=60)
        before = datetime.now(UTC)
        await postgres.kill()
        try:
            # Until the kill is noticed: no answer may hold a word of the driver.
            answers: list[str] = []

            async def is_unready() -> bool:
                status, answer = await sidecar.readyz()
                answers.append(str(answer))
                return status == 503 and not answer["checks"]["database"]["ok"]

            await eventually(is_unready, timeout=30)
            noticed = datetime.now(UTC)
            _, ready = await sidecar.readyz()
            first, *others = await sidecar.diagnoses()
            page = await page_of(sidecar)
            code, out, err = await sidecar.cli("status")
        finally:
            await postgres.start()
        await sidecar.wait_ready()

    assert ready["checks"]["database"]["detail"].startswith("unreachable (")
    assert (first["check"], first["headline"]) == ("database", HEADLINE)
    assert before <= datetime.fromisoformat(first["since"]) <= noticed
    unknown = {one["check"]: one["explanation"] for one in others if one["health"] == "unknown"}
    assert {"workers", "worker unavailable", "brake"} <= set(unknown)
    assert {unknown[kind] for kind in ("workers", "worker unavailable", "brake")} == {
        "the database is unreachable"
    }
    assert f"<title>{HEADLINE} since " in page
    assert code == 1
    assert "unreachable (connect to " in out
    for text in (*answers, str(ready), str(first), str(others), page, out, err):
        assert [word for word in RAW if word in text] == []


async def page_of(sidecar: SidecarProcess) -> str:
    async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
        return (await client.get(sidecar.ui_url)).text
