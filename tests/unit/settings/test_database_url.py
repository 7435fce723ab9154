"""Which parameters of a database URL the driver gets, which we obey ourselves, and which are refused."""

from contextlib import suppress

import pytest
from asyncpg.connect_utils import _parse_connect_dsn_and_args
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dlq_handler.database.url import DatabaseUrl, read_database_url


def read(url: str) -> DatabaseUrl:
    return read_database_url(url, application_name="dlq-handler")


def parsed_by_the_driver(dsn: str) -> tuple[list[object], object]:
    names = "host port user password passfile database ssl service servicefile direct_tls server_settings"
    unsaid = dict.fromkeys((*names.split(), "target_session_attrs", "krbsrvname", "gsslib"))
    addresses, parameters = _parse_connect_dsn_and_args(dsn=dsn, **unsaid)
    return addresses, parameters


def test_everything_the_driver_knows_is_handed_on() -> None:
    url = (
        "postgresql://u:p%40ss@one:1,two:2/db?sslmode=verify-full&sslrootcert=%2Fca.pem&options=-c+geqo%3Doff"
    )
    assert read(url).dsn == url


def test_what_the_driver_would_send_to_the_server_is_taken_out() -> None:
    read_url = read(
        "postgresql://h/db?connect_timeout=7&keepalives_idle=30&tcp_user_timeout=5000&client_encoding=utf8"
        "&channel_binding=prefer&gssencmode=disable&sslcompression=0&load_balance_hosts=random&sslmode=require"
        "&statement-cache-capacity=100&"
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
    ("url", "address"),
    [
        ("postgresql://u:p@h/d", ("h", 5432)),
        ("postgresql://u:p@[::1]:6000/d", ("::1", 6000)),
        ("postgresql://u:p@/d?host=/run/pg&port=6000", "/run/pg/.s.PGSQL.6000"),
        ("postgresql://u@%2Frun%2Fpg/d", "/run/pg/.s.PGSQL.5432"),
        ("postgresql:///?user=u&host=h&dbname=d", ("h", 5432)),
    ],
)
def test_driver_finds_server_user_and_database(url: str, address: object) -> None:
    addresses, parameters = parsed_by_the_driver(read(url).dsn)

    assert addresses == [address]
    assert (getattr(parameters, "user", ""), getattr(parameters, "database", "")) == ("u", "d")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("hostaddr=S3CRET", "hostaddr"),
        ("require_auth=S3CRET", "require_auth"),
        ("scram_client_key=S3CRET", "scram_client_key"),
        ("channel_binding=require", "channel_binding is one of disable, prefer"),
        ("gssencmode=require", "gssencmode is one of"),
        ("sslmode=S3CRET", "sslmode is one of disable, allow, prefer, require, verify-ca, verify-full"),
        ("sslmode=", "sslmode is one of"),
        ("sslnegotiation=S3CRET", "sslnegotiation is one of postgres, direct"),
        ("sslnegotiation=direct", "sslmode of require, verify-ca, verify-full"),
        ("sslrootcert=system", "sslrootcert is a file"),
        ("ssl_min_protocol_version=SSLv3", "ssl_min_protocol_version is one of TLSv1"),
        ("gsslib=S3CRET", "gsslib is one of"),
        ("target_session_attrs=S3CRET", "target_session_attrs is one of any, primary, read-write"),
        ("target_session_attrs=standby", "target_session_attrs is one of"),
        ("connect_timeout=S3CRET", "connect_timeout is a whole number"),
        ("connect_timeout=99999999999", "connect_timeout is a whole number"),
        ("keepalives_idle=32768", "keepalives_idle is a whole number from 0 to 32767"),
        ("keepalives_count=-1", "keepalives_count is a whole number"),
        ("sslmode", "name=value"),
        ("S3CRET=1", "no other parameters than those of libpq"),
        ("host=S3CRET", "the host written before the ?"),
        ("port=6000", "the port written before the ?"),
        ("user=S3CRET", "the user written before the ?"),
        ("password=S3CRET", "the password written before the ?"),
        ("dbname=S3CRET", "the dbname written before the ?"),
        ("application_name=%S3", "percent-encoded"),
        ("application_name=%00", "percent-encoded"),
        ("application_name=%ff", "percent-encoded"),
    ],
)
def test_what_cannot_be_obeyed_is_refused_in_words_that_quote_no_value(query: str, message: str) -> None:
    with pytest.raises(ValueError, match=r"^a database URL ") as refused:
        read(f"postgresql://u:S3CRET@h/db?{query}")
    assert message in str(refused.value)
    assert "S3" not in str(refused.value)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize(
    "url",
    [
        "mysql://u:S3CRET@h/d",
        "postgresql://u:S3@CRET@h/d",
        "postgresql://u:S3%CRET@h/d",
        "postgresql://u:1?S3CRET@h/d",
        "postgresql://u:1?S3=CRET@h/d",
        "postgresql://u:S3CRET\N{CARE OF}@h/d",
        "postgresql://u:S3CRET@h:port/d",
        "postgresql://u:S3CRET@h:0/d",
        "postgresql://u:S3CRET@:5432/d",
        "postgresql://u:S3CRET@one,,two/d",
        "postgresql://u:S3CRET@x[::1]/d",
        "postgresql:///d?password=S3CRET&host=::1",
        "postgresql:///d?password=S3CRET&host=one,two&port=1,2,3",
        "postgresql:///d?password=S3CRET&host=one&port=S3",
        "postgresql:///d?password=S3CRET&host=one,two&port=1,",
    ],
)
def test_an_address_that_cannot_be_read_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(ValueError, match=r"^a database URL ") as refused:
        read(url)
    assert "S3" not in str(refused.value)


_HOSTS = st.lists(
    st.sampled_from(["h", "", "[::1]", "x[::1]", "[", "::1", "/run/pg", "%2Frun", "h h"]), max_size=3
)
_PORTS = st.sampled_from(["", ":", ":1", ":x", ":0", ":70000", ":%31"])
_QUERY = st.sampled_from(
    (
        *("host=h", "host=a,b", "host=,", "host=::1", "host=h:x", "host=x[::1]"),
        *("port=1", "port=1,2", "port=", "port=x", "port=,", "user=v", "dbname=e", "service=none"),
        *("sslmode=require", "sslmode=x", "sslmode=parse", "sslnegotiation=direct", "sslnegotiation=x"),
        *(
            "target_session_attrs=primary",
            "target_session_attrs=x",
            "gsslib=x",
            "ssl_max_protocol_version=TLSv9",
        ),
        *("application_name=%zz", "x", "x=1", "connect_timeout=3", "keepalives=1"),
    )
)


@settings(max_examples=500)
@given(
    user=st.sampled_from(["", "u@", "u:p@", ":p@", "u:p@p@", "%zz@"]),
    hosts=_HOSTS,
    ports=st.lists(_PORTS, min_size=3, max_size=3),
    path=st.sampled_from(["", "/", "/d", "/d%20e", "/%"]),
    query=st.lists(_QUERY, max_size=3),
)
@example(user="u:p@", hosts=["h"], ports=[":1", "", ""], path="/d", query=["sslmode=require"])
def test_driver_can_read_whatever_is_not_refused(
    user: str, hosts: list[str], ports: list[str], path: str, query: list[str]
) -> None:
    netloc = user + ",".join(host + port for host, port in zip(hosts, ports, strict=False))
    with suppress(ValueError):
        dsn = read(f"postgresql://{netloc}{path}?{'&'.join(query)}").dsn
        try:
            parsed_by_the_driver(dsn)
        except Exception as error:
            raise AssertionError(f"the driver refuses {dsn}: {error}") from error


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("postgresql://attune:secret@db-7:5433/attune", "db-7:5433"),
        ("postgresql://attune@db-1:5432,db-2:5432/attune", "db-1:5432,db-2:5432"),
        ("postgresql:///attune?host=/run/postgresql", "/run/postgresql"),
    ],
)
def test_the_address_for_people_has_neither_user_nor_password(url: str, address: str) -> None:
    assert read_database_url(url, application_name="us").address == address
