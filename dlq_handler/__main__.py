"""The command `dlq-handler`, also as `python -m dlq_handler`."""

import sys


def main() -> None:
    # Before the imports of everything else, which take a second of CPU: container runtimes ask this all the time.
    if sys.argv[1:] == ["health"]:
        from dlq_handler.surface.cli.health import check_health  # noqa: PLC0415  light, and all that `health` loads

        sys.exit(check_health())
    from dlq_handler.main import main as whole  # noqa: PLC0415  a second of CPU that `health` must not pay

    whole()


if __name__ == "__main__":
    main()
