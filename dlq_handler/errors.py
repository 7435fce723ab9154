"""The exceptions of dlq-handler. Expected outcomes are values; these are broken expectations, facts as fields."""

from dlq_handler.masking import without_passwords


class Unavailable(Exception):
    """A server does not answer, or refuses dlq-handler. Nothing was decided; the loops back off and try again."""

    def __init__(self, component: str, what: str) -> None:
        # Pages, logs and commands show it. It is often a driver's text, and some drivers quote the URL.
        what = without_passwords(what)
        super().__init__(f"{component}: {what}")
        self.component = component
        self.what = what


class Unreachable(Unavailable):
    """No connection to the server, or no answer in time."""

    def __init__(self, component: str, explanation: str) -> None:
        super().__init__(component, f"unreachable ({explanation})")


class TooSlow(Unavailable):
    """The database answers, but a transaction took longer than it may: a smaller one may fit."""

    def __init__(self, what: str) -> None:
        super().__init__("database", what)


class GrantsMissing(Unavailable):
    """The database refuses a right. No dead letter causes this, so none is acknowledged because of it."""

    def __init__(self, what: str) -> None:
        super().__init__("database", f"{what}; `dlq-handler grants` prints what the role needs")


class BrokerRightsMissing(Unavailable):
    """The broker refuses a right that dlq-handler needs (ACCESS_REFUSED). Waiting alone does not help."""

    def __init__(self, what: str) -> None:
        super().__init__("broker", f"{what}; `dlq-handler grants` prints the rights that the user needs")


class SchemaUnfit(Unavailable):
    """The tables of dlq-handler are missing, or of another version than this program."""

    def __init__(self, what: str) -> None:
        super().__init__("database", what)


class Braked(Unavailable):
    """The brake is tripped: too many executions were ended in a minute, and nothing more is ended for now."""

    def __init__(self, what: str) -> None:
        super().__init__("brake", f"{what}; `dlq-handler brake status` shows more")


class GateClosed(Unavailable):
    """What dlq-handler reads from the database is unreliable, so nothing is decided by it."""

    def __init__(self, what: str) -> None:
        super().__init__("gate", what)


class Contended(Exception):
    """The database asks to try the same transaction again: deadlock, serialisation, lock timeout."""


class RowRefused(Exception):
    """The database refused the content of a row: a value, a constraint, or a trigger of the host.

    database/driver.py lists the SQLSTATE classes.
    """

    def __init__(self, sqlstate: str, what: str) -> None:
        super().__init__(f"{sqlstate}: {what}")
        self.sqlstate = sqlstate
        self.what = what


class ServiceEnded(Exception):
    """A service ended before it was asked to. That is a bug; the process ends, so that it is started again."""

    exit_code = 70

    def __init__(self, service: str, how: str) -> None:
        super().__init__(f"{service} ended before it was asked to: {how}")
        self.service = service
        self.how = how


class StartTimedOut(Exception):
    """A server did not answer within `dlq_handler.startup.wait_seconds`."""

    exit_code = 69


class UnsupportedLibrary(Exception):
    """An installed library lacks an internal that dlq-handler relies on. The process must not start with it."""

    exit_code = 78

    def __init__(self, library: str, *, version: str, missing: str, required: str) -> None:
        super().__init__(
            f"{library} {version} is not supported: {missing} is missing or has changed; install {required}"
        )
        self.library, self.version, self.missing, self.required = library, version, missing, required
