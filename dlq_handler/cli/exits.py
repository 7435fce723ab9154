"""Every exit code, in one place, because scripts rely on them, and what a command prints when a server fails it.

docs/reference/cli.md is made of this table.
"""

from dlq_handler.cli.printing import print_error
from dlq_handler.diagnosis.check_servers import DATABASE_ACTION
from dlq_handler.errors import Contended, RowRefused, Unavailable, Unreachable, UnsupportedLibrary

EXIT_FINE = 0
EXIT_FAILED = 1
EXIT_UNKNOWN = 2
EXIT_UNAVAILABLE = 69
EXIT_SERVICE_ENDED = 70
EXIT_CONFIG = 78
EXIT_INTERRUPTED = 130

MEANINGS = {
    EXIT_FINE: "done; of commands that decide (`status`, `doctor`, `topology check`, `canary run`): all is well",
    EXIT_FAILED: (
        "not done, or not all of it, and stderr shows the reason; of commands that decide: something is wrong. "
        "`brake status`: it is tripped. `health`: not alive"
    ),
    EXIT_UNKNOWN: (
        "of commands that decide: no problem was found, and something is unknown. Of every command: invalid "
        "arguments; stderr shows the usage"
    ),
    EXIT_UNAVAILABLE: "database or broker does not answer, and the command needs it",
    EXIT_SERVICE_ENDED: "`run`: a service ended before it was asked to; the log event `service.ended` names it",
    EXIT_CONFIG: (
        "the settings cannot be used (`config check` shows the problems), or an installed AMQP library is not "
        "supported; `run`: the port is taken"
    ),
    EXIT_INTERRUPTED: "interrupted by Ctrl-C (143: by SIGTERM). `status --watch`: the code of its last answer instead",
}


def exit_code_of(error: Exception) -> int | None:
    """Prints the error. None: it is a bug, whose trace is wanted."""
    unsupported = _find_unsupported(error)
    if unsupported is not None:
        print_error(str(unsupported))
        return unsupported.exit_code
    if isinstance(error, Unavailable | Contended):
        print_error(with_action(error))
        return EXIT_UNAVAILABLE
    if isinstance(error, RowRefused):
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
