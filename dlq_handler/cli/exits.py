"""Every exit code, in one place: scripts rely on them. docs/reference/cli.md is made of this table."""

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
        "not done, or not all of it, and stderr says why; of commands that decide: something is wrong. "
        "`brake status`: it is tripped. `health`: not alive"
    ),
    EXIT_UNKNOWN: (
        "of commands that decide: nothing wrong was found, and something cannot be told. Of every command: it was "
        "typed wrongly, and stderr shows how it is typed"
    ),
    EXIT_UNAVAILABLE: "database or broker does not answer, and the command cannot do without",
    EXIT_SERVICE_ENDED: "`run`: a service ended before it was asked to; the log event `service.ended` names it",
    EXIT_CONFIG: (
        "the settings cannot be used (`config check` says why), or an installed AMQP library is not supported; "
        "`run`: the port is taken"
    ),
    EXIT_INTERRUPTED: "interrupted by Ctrl-C (143: by SIGTERM). `status --watch`: the code of its last answer instead",
}
