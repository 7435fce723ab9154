"""The environment of the processes that the sandbox starts: without variables that name other servers."""

import os
from collections.abc import Mapping

# Read by Attune and the sidecar; by every client of PostgreSQL, ours included; by RabbitMQ's; by Erlang.
OTHER_SERVER_PREFIXES = ("ATTUNE", "PG", "RABBITMQ_", "ERL")


def clean_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment without what leads elsewhere, and these.

    A shell may export the broker of a real installation: a demo that inherits that variable would take
    the real dead letters and decide them by a database that is thrown away.
    """
    inherited = {name: value for name, value in os.environ.items() if not names_other_server(name)}
    return inherited | dict(settings)


def drop_other_servers() -> None:
    """Drop it from our own environment: for a process that talks to the sandbox's servers itself."""
    for name in list(os.environ):
        if names_other_server(name):
            del os.environ[name]


def names_other_server(name: str) -> bool:
    return name.upper().startswith(OTHER_SERVER_PREFIXES)
