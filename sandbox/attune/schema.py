"""Install stock Attune's schema into a database, the way its migrations leave it.

The schema is not put on the database's search_path: a client that forgets to set it meets the same failing triggers
as beside a real Attune. Installing twice changes nothing.
"""

from importlib.resources import files

from sandbox.attune.database import bare_connection
from sandbox.attune.defects import NONE_CURED, Cured, Defect

# Defects of the tables themselves. The sum of integers is a bigint, which Attune can read.
_CURES = {
    Defect.D15: """
        ALTER TABLE execution_admission_state ALTER total_enqueued TYPE integer, ALTER total_completed TYPE integer;
    """,
    Defect.NO_HISTORY_ID: """
        ALTER TABLE execution_history ADD COLUMN IF NOT EXISTS id bigserial;
        ALTER TABLE worker_history ADD COLUMN IF NOT EXISTS id bigserial;
    """,
}


async def install(url: str, schema: str = "attune", *, cured: Cured = NONE_CURED) -> None:
    await _install_as_stock(url, schema)
    await cure(url, cured, schema)


async def cure(url: str, defects: Cured, schema: str = "attune") -> None:
    """Those that are defects of the tables; the others are cured in the services."""
    cures = "".join(_CURES[defect] for defect in Defect if defect in defects and defect in _CURES)
    if cures:
        async with bare_connection(url) as connection:
            await connection.execute(f"SET search_path TO {schema}, public;\n{cures}")


async def _install_as_stock(url: str, schema: str) -> None:
    package = files("sandbox.attune")
    async with bare_connection(url) as connection:
        if await connection.fetchval("SELECT to_regclass($1)", f"{schema}.execution"):
            return
        # One batch is one transaction: a broken statement leaves nothing behind.
        await connection.execute(
            f"CREATE SCHEMA IF NOT EXISTS {schema}; SET search_path TO {schema}, public;\n"
            + package.joinpath("schema.sql").read_text()
            + package.joinpath("triggers.sql").read_text()
        )
