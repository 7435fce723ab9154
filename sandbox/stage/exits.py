"""Exit codes of the sandbox's commands, as sysexits.h numbers them."""

EXIT_FAILED = 1
EXIT_USAGE = 64
EXIT_NO_SERVER = 69
EXIT_TAKEN = 75
EXIT_INTERRUPTED = 130
