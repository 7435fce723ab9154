"""Whose fault an error is: a refused row is its letter's, everything else is our own trouble."""

import asyncpg
import pytest
from sqlalchemy.exc import TimeoutError as PoolTimeout

from dlq_handler.database.driver import DRIVER_ERRORS, commit_fault_of, fault_of
from dlq_handler.errors import Contended, GrantsMissing, RowRefused, TooSlow, Unavailable, Unreachable
from sandbox.attune.database import DATABASE_AWAY


def an_error(sqlstate: str) -> asyncpg.PostgresError:
    error = asyncpg.PostgresError("it says no")
    error.sqlstate = sqlstate
    return error


@pytest.mark.parametrize(
    ("sqlstate", "kind", "is_link_down"),
    [
        ("22023", RowRefused, False),
        ("23505", RowRefused, False),
        ("44000", RowRefused, False),
        ("54000", RowRefused, False),
        ("P0001", RowRefused, False),
        ("U0001", RowRefused, False),
        ("99999", RowRefused, False),
        ("40P01", Contended, False),
        ("40001", Contended, False),
        ("55P03", Contended, False),
        ("42501", GrantsMissing, False),
        ("42P01", Unavailable, False),
        ("57014", TooSlow, False),
        ("55006", Unavailable, False),
        ("XX000", Unavailable, False),
        ("25P02", Unavailable, False),
        ("F0000", Unavailable, False),
        # The database can take no heartbeat.
        ("08006", Unreachable, True),
        ("25006", Unavailable, True),
        ("25P03", Unavailable, True),
        ("53300", Unreachable, True),
        ("57P01", Unreachable, True),
        ("58030", Unreachable, True),
    ],
)
def test_fault_by_sqlstate(sqlstate: str, kind: type[Exception], is_link_down: bool) -> None:
    fault = fault_of(an_error(sqlstate), "query")
    assert (type(fault.error), fault.is_link_down) == (kind, is_link_down)


@pytest.mark.parametrize("sqlstate", ["28P01", "28000", "3D000"])
def test_a_wrong_user_password_or_database_names_the_setting(sqlstate: str) -> None:
    assert "database.url" in str(fault_of(an_error(sqlstate), "connect").error)


@pytest.mark.parametrize("sqlstate", ["22023", "23505", "P0001", "40001", "42501", "57P01"])
def test_at_commit_nothing_is_a_letters_fault(sqlstate: str) -> None:
    assert isinstance(commit_fault_of(an_error(sqlstate)).error, Unavailable)


def test_an_exhausted_pool_has_its_own_message_and_is_no_lost_connection() -> None:
    fault = fault_of(PoolTimeout("QueuePool limit of size 8 overflow 0 reached"), "connect")

    assert str(fault.error) == (
        "database: connect: all connections wait for an answer; "
        "check whether PostgreSQL hangs, is overloaded or has locked tables"
    )
    assert not fault.is_link_down


def test_a_connection_that_died_in_mid_call_is_a_lost_link_for_us_and_for_the_reference_attune() -> None:
    """As asyncpg says it when such a connection is used once more."""
    died = asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is in progress")

    assert isinstance(died, DRIVER_ERRORS)
    assert isinstance(died, DATABASE_AWAY)
    assert (type(fault_of(died, "query").error), fault_of(died, "query").is_link_down) == (Unreachable, True)


@pytest.mark.parametrize(
    ("error", "explanation"),
    [
        (
            asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is in progress"),
            "lost",
        ),
        (asyncpg.InterfaceError("cannot perform operation: connection is closed"), "lost"),
        (asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation"), "lost"),
        (asyncpg.AdminShutdownError("terminating connection due to administrator command"), "lost"),
        (ConnectionResetError(104, "Connection reset by peer"), "lost"),
        (ConnectionRefusedError(111, "Connect call failed"), "refused"),
        (asyncpg.CannotConnectNowError("the database system is starting up"), "is starting up"),
        (ConnectionError("no connection within 5 s"), "no connection within 5 s"),
    ],
)
def test_every_lost_connection_says_that_the_database_is_unreachable(
    error: Exception, explanation: str
) -> None:
    fault = fault_of(error, "query")

    text = str(fault.error)
    assert (fault.is_link_down, text.startswith("database: unreachable (query: "), explanation in text) == (
        True,
        True,
        True,
    )
    assert type(error).__name__ not in text
    assert "switch to state" not in text
