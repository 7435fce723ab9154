"""Install stock Attune's schema into a database, the way its migrations leave it.

The schema is not put on the database's search_path: whoever forgets to set it meets the same failing triggers
as beside a real Attune. Installing twice changes nothing.
"""

from importlib.resources import files

from dlq_handler.sandbox.attune.database import bare_connection


async def install(url: str, schema: str = "attune") -> None:
    package = files("dlq_handler.sandbox.attune")
    async with bare_connection(url) as connection:
        if await connection.fetchval("SELECT to_regclass($1)", f"{schema}.execution"):
            return
        # One batch is one transaction: a broken statement leaves nothing behind.
        await connection.execute(
            f"CREATE SCHEMA IF NOT EXISTS {schema}; SET search_path TO {schema}, public;\n"
            + package.joinpath("schema.sql").read_text()
            + package.joinpath("triggers.sql").read_text()
        )
