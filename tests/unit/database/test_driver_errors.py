"""Whose fault an error is: a refused row is its letter's, everything else is our own trouble."""

import asyncpg
import pytest
from sqlalchemy.exc import TimeoutError as PoolTimeout

from dlq_handler.database.driver_errors import DRIVER_ERRORS, commit_fault_of, fault_of
from dlq_handler.errors import Contended, GrantsMissing, RowRejected, Unavailable, Unreachable
from sandbox.attune.database import DATABASE_AWAY


def an_error(sqlstate: str) -> asyncpg.PostgresError:
    error = asyncpg.PostgresError("it says no")
    error.sqlstate = sqlstate
    return error


@pytest.mark.parametrize(
    ("sqlstate", "kind"),
    [
        ("22023", RowRejected),
        ("23505", RowRejected),
        ("44000", RowRejected),
        ("54000", RowRejected),
        ("P0001", RowRejected),
        ("U0001", RowRejected),
        ("99999", RowRejected),
        ("40P01", Contended),
        ("40001", Contended),
        ("55P03", Contended),
        ("42501", GrantsMissing),
        ("42P01", Unavailable),
        ("08006", Unreachable),
        ("53300", Unreachable),
        ("55006", Unavailable),
        ("57P01", Unreachable),
        ("58030", Unreachable),
        ("XX000", Unavailable),
        ("25P02", Unavailable),
        ("F0000", Unavailable),
    ],
)
def test_fault_by_sqlstate(sqlstate: str, kind: type[Exception]) -> None:
    assert type(fault_of(an_error(sqlstate), "query").error) is kind


@pytest.mark.parametrize("sqlstate", ["28P01", "28000", "3D000"])
def test_a_wrong_user_password_or_database_names_the_setting(sqlstate: str) -> None:
    assert "database.url" in str(fault_of(an_error(sqlstate), "connect").error)


@pytest.mark.parametrize("sqlstate", ["22023", "23505", "P0001", "40001", "42501", "57P01"])
def test_at_commit_nothing_is_a_letters_fault(sqlstate: str) -> None:
    assert isinstance(commit_fault_of(an_error(sqlstate)).error, Unavailable)


@pytest.mark.parametrize("sqlstate", ["08006", "25006", "25P03", "53100", "57P01", "58030"])
def test_database_that_can_take_no_heartbeat_breaks_the_link(sqlstate: str) -> None:
    assert fault_of(an_error(sqlstate), "query").is_link_down


@pytest.mark.parametrize("sqlstate", ["22023", "40001", "42501", "42P01", "55P03", "57014"])
def test_database_that_says_no_to_us_alone_does_not_break_the_link(sqlstate: str) -> None:
    assert not fault_of(an_error(sqlstate), "query").is_link_down


def test_a_pool_that_ran_dry_is_told_in_our_words_and_is_no_broken_link() -> None:
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
