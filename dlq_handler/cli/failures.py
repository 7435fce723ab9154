"""What a command prints, and how it exits, when a server or a library fails it."""

from dlq_handler.cli.exits import EXIT_FAILED, EXIT_UNAVAILABLE
from dlq_handler.cli.printing import print_error
from dlq_handler.diagnosis.check_servers import DATABASE_ACTION
from dlq_handler.errors import Contended, RowRejected, Unavailable, Unreachable, UnsupportedLibrary


def exit_code_of(error: Exception) -> int | None:
    """Prints the error. None: it is a bug, whose trace is wanted."""
    unsupported = _find_unsupported(error)
    if unsupported is not None:
        print_error(str(unsupported))
        return unsupported.exit_code
    if isinstance(error, Unavailable | Contended):
        print_error(with_action(error))
        return EXIT_UNAVAILABLE
    if isinstance(error, RowRejected):
        print_error(f"The database refused it: {error}")
        return EXIT_FAILED
    return None


def with_action(error: Exception) -> str:
    """The error, and for an unreachable database the action that `status` prints too."""
    if isinstance(error, Unreachable) and error.component == "database":
        return f"{error}. {DATABASE_ACTION}"
    return str(error)


def _find_unsupported(error: Exception) -> UnsupportedLibrary | None:
    """Some commands ask database and broker at once, so it may be one of several errors."""
    if isinstance(error, ExceptionGroup):
        return next(filter(None, map(_find_unsupported, error.exceptions)), None)
    return error if isinstance(error, UnsupportedLibrary) else None
