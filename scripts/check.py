"""Everything that is checked without running the product (`./run check`): lint, formatting, types, direction
of imports.

All are run even when one fails, so that one round shows everything; the exit code is 1 when any failed.
"""

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHECKS = {
    "lint": ["ruff", "check", "."],
    "formatting": ["ruff", "format", "--check", "."],
    "types": ["mypy"],
    "direction of imports": ["pytest", "--quiet", "tests/architecture"],
}


def main() -> int:
    failed = []
    for what, (module, *arguments) in CHECKS.items():
        began = time.monotonic()
        code = subprocess.run([sys.executable, "-m", module, *arguments], cwd=ROOT, check=False).returncode
        print(
            f"./run check: {what}: {'ok' if code == 0 else 'FAILED'} ({time.monotonic() - began:.1f} s)",
            flush=True,
        )
        if code != 0:
            failed.append(what)
    if failed:
        print(f"./run check: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
