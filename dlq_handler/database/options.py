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
    """How PostgreSQL is used."""

    pool_size: Annotated[int, Field(ge=2, le=1000)] = Field(
        default=8,
        description=(
            "Connections held at most; two batches, the relay, the scans and the watches need one each at a "
            "time."
        ),
    )
    connect_timeout_seconds: Annotated[Seconds, Field(ge=0.1, le=600)] = Field(
        default=5,
        description="Seconds one attempt to connect may take before the database counts as away.",
    )
    statement_timeout_ms: Annotated[int, Field(ge=100, le=2**31 - 1)] = Field(
        default=30_000,
        description=(
            "Milliseconds one statement may run; longer counts as our trouble, and the batch is tried again."
        ),
    )
    lock_timeout_ms: Annotated[int, Field(ge=1, le=2**31 - 1)] = Field(
        default=2000,
        description=(
            "Milliseconds to wait for a lock that cannot be skipped, on a table or on our own records; "
            "then the whole batch is tried again. Executions that another session holds are not waited for: "
            "their letters are held over."
        ),
    )
