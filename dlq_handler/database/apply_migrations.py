"""Apply migrations with Alembic."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

_FOLDER = Path(__file__).with_name("migrations")


@dataclass(frozen=True, slots=True)
class Step:
    revision: str
    concurrent_indexes: Mapping[str, str]
    """Statements by the name of the index they build. They run outside a transaction, before the migration."""


def next_step(versions: Path, applied: str | None) -> Step:
    """The migration after the one that was applied last."""
    scripts = ScriptDirectory.from_config(_config(versions))
    [script] = [one for one in scripts.walk_revisions() if one.down_revision == applied]
    return Step(script.revision, getattr(script.module, "CONCURRENT_INDEXES", {}))


def apply(connection: Connection, versions: Path, own_schema: str, revision: str) -> None:
    """In the transaction of this connection."""
    config = _config(versions)
    config.attributes["connection"] = connection
    config.attributes["own_schema"] = own_schema
    command.upgrade(config, revision)


def _config(versions: Path) -> Config:
    config = Config()
    # A percent sign in a path would be read as an interpolation.
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.set_main_option("version_locations", str(versions).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
