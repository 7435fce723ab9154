"""What can go wrong between us and a sandbox server. Each says what was wanted and what to do."""

from sandbox.server_programs.errors import SourceUnavailable


class NoServer(Exception):
    """Every way to a server is closed, or the one that was asked for by name does not answer."""


class NotPrivate(Exception):
    """Asked to stop, kill or starve a server that others may be using."""

    def __init__(self, server: str, origin: str) -> None:
        super().__init__(
            f"this {server} ({origin}) is not ours to stop, kill or starve; launch a private one: "
            f"`await Private{server}.launch()`"
        )


class StartFailed(SourceUnavailable):
    """A server of ours ended or kept silent while starting."""
