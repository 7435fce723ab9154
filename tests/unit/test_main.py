"""The last line of a command that ends because a server is unavailable."""

import pytest

from dlq_handler.errors import GrantsMissing, Unavailable
from dlq_handler.main import with_action


@pytest.mark.parametrize(
    ("error", "action"),
    [
        (
            Unavailable("database", "unreachable (connect: connection refused)"),
            "; start PostgreSQL, or correct database.url",
        ),
        (Unavailable("broker", "consume: nobody listens there"), ""),
        (GrantsMissing("permission denied"), ""),
    ],
)
def test_an_unreachable_database_names_the_action(error: Unavailable, action: str) -> None:
    assert with_action(error) == f"{error}{action}"
