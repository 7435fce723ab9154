"""Settings of the connections to PostgreSQL, and the check of its URL."""

from typing import Annotated

from pydantic import AfterValidator, Field

from dlq_handler.database.url import read_database_url
from dlq_handler.options import SECRET_URL, OwnSection, Seconds, SecretUrl, split_url


def _postgres(url: SecretUrl) -> SecretUrl:
    # libpq allows several hosts, or none with `?host=/socket/folder`; the driver understands both.
    split_url(url, ("postgresql", "postgres"), "postgresql://user:password@host:5432/attune")
    # What the driver would refuse is found out here, not after a minute of attempts to connect.
    read_database_url(url.get_secret_value(), application_name="")
    return url


PostgresUrl = Annotated[SecretUrl, AfterValidator(_postgres), SECRET_URL]


class DatabaseOptions(OwnSection):
    """Connections to PostgreSQL."""

    pool_size: Annotated[int, Field(ge=2, le=1000)] = 8
    """Maximum number of database connections. Two batches, the relay, the scans and the watches each use
    one at a time."""
    connect_timeout_seconds: Annotated[Seconds, Field(ge=0.1, le=600)] = 5
    """Maximum duration of one attempt to connect, in seconds. Then the database is unavailable."""
    statement_timeout_ms: Annotated[int, Field(ge=100, le=2**31 - 1)] = 30_000
    """Maximum duration of one statement, in milliseconds. Then the batch is tried again, in smaller parts."""
    lock_timeout_ms: Annotated[int, Field(ge=1, le=2**31 - 1)] = 2000
    """Maximum time to wait for a lock on a table or on dlq-handler's records, in milliseconds. Then the whole batch is
    tried again. Dead letters of executions that another session has locked do not wait: they are postponed."""
