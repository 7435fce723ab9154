"""Which parameters of a database URL the driver gets, which we obey ourselves, and which are refused."""

import pytest

from dlq_handler.store.database_url import DatabaseUrl, read_database_url


def read(url: str) -> DatabaseUrl:
    return read_database_url(url, application_name="dlq-handler")


def test_everything_the_driver_knows_is_handed_on() -> None:
    url = (
        "postgresql://u:p%40ss@one:1,two:2/db?sslmode=verify-full&sslrootcert=%2Fca.pem&options=-c+geqo%3Doff"
    )
    assert read(url).dsn == url


def test_what_the_driver_would_send_to_the_server_is_taken_out() -> None:
    read_url = read(
        "postgresql://h/db?connect_timeout=7&keepalives_idle=30&tcp_user_timeout=5000&client_encoding=utf8"
        "&channel_binding=prefer&gssencmode=disable&sslcompression=0&load_balance_hosts=random&sslmode=require"
    )
    assert read_url.dsn == "postgresql://h/db?sslmode=require"
    assert read_url.connect_timeout_seconds == 7
    assert read_url.keepalive == {"keepalives_idle": 30, "tcp_user_timeout": 5000}


@pytest.mark.parametrize("url", ["postgres://h/db", "postgresql://h/db", "postgresql+asyncpg://h/db"])
def test_all_spellings_of_the_scheme_are_taken(url: str) -> None:
    assert read(url).dsn.partition("://")[2] == "h/db"


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("", "dlq-handler"),
        ("application_name=a&fallback_application_name=b", "a"),
        ("fallback_application_name=b", "b"),
        ("application_name=&fallback_application_name=b", "b"),
    ],
)
def test_application_name_is_the_first_that_was_given(query: str, name: str) -> None:
    assert read(f"postgresql://h/db?{query}").application_name == name


@pytest.mark.parametrize("query", ["", "connect_timeout=0", "connect_timeout=-1"])
def test_no_connect_timeout_means_ours(query: str) -> None:
    assert read(f"postgresql://h/db?{query}").connect_timeout_seconds is None


@pytest.mark.parametrize(
    "parameter",
    ["channel_binding=require", "gssencmode=require", "require_auth=scram-sha-256", "hostaddr=10.0.0.1"],
)
def test_what_cannot_be_obeyed_is_refused_by_name(parameter: str) -> None:
    with pytest.raises(ValueError, match=parameter.partition("=")[0]):
        read(f"postgresql://u:secret@h/db?{parameter}")


@pytest.mark.parametrize("url", ["mysql://u:secret@h/db", "postgresql://u:secret@h/db?connect_timeout=soon"])
def test_error_does_not_quote_the_url(url: str) -> None:
    with pytest.raises(ValueError, match="the database URL") as refused:
        read(url)
    assert "secret" not in str(refused.value)


def test_repr_hides_the_password() -> None:
    assert "secret" not in repr(read("postgresql://u:secret@h/db"))
