"""The command `dlq-handler`, also as `python -m dlq_handler`."""

import sys


def main() -> None:
    # Before the imports of everything else, which take a second of CPU: container runtimes ask this all the time.
    if sys.argv[1:] == ["health"]:
        from dlq_handler.cli.health import check_health  # noqa: PLC0415  light, and all that `health` loads

        sys.exit(check_health())
    try:
        from dlq_handler.main import main as whole  # noqa: PLC0415  a second of CPU that `health` must not pay

        whole()
    except ImportError:
        _exit_if_unsupported()
        raise


def _exit_if_unsupported() -> None:
    """A library of another version may lack a name that is imported. Then name the library instead of a trace."""
    from dlq_handler.broker.client.supported import assert_supported  # noqa: PLC0415  only after an error
    from dlq_handler.errors import UnsupportedLibrary  # noqa: PLC0415  only after an error

    try:
        assert_supported()
    except UnsupportedLibrary as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
