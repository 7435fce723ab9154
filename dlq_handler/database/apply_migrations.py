"""Apply our migrations with alembic.

Imported only when there is something to apply: alembic with what it brings is a fifth of the time that a command takes
to start.
"""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection

FOLDER = Path(__file__).with_name("migrations")


class MadeByNewer(Exception):
    """The tables are of a version that this program does not know."""


def apply_migrations(connection: Connection, own_schema: str) -> None:
    config = _config()
    config.attributes["connection"] = connection
    config.attributes["own_schema"] = own_schema
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise MadeByNewer(str(error)) from error


def alembics_head() -> str | None:
    return ScriptDirectory.from_config(_config()).get_current_head()


def _config() -> Config:
    config = Config()
    # A percent sign in the path would be read as an interpolation.
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
