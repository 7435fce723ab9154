"""Write requirements.lock (runtime + dev) and requirements.runtime.lock (the container's) anew (`./run lock
[ARGS]`).

One resolution for Linux and macOS, x86-64 and arm64, Python 3.11 and newer. Hashes pin every file; no URL,
index, host name or path of this machine is written, so the locks hold wherever pip finds its packages. ARGS
go to the resolver (e.g. --upgrade).
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESOLVER = "uv==0.13.7"
OPTIONS = [
    "--universal",
    "--python-version=3.11",
    "--generate-hashes",
    "--no-emit-index-url",
    "--no-emit-find-links",
    "--no-annotate",
    "--no-header",
    "--no-config",
    "--quiet",
]
HEADER = "# {what} Written by ./run lock; do not edit.\n"


def main(arguments: list[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="dlq-handler-lock-") as scratch:
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", scratch, RESOLVER]
        subprocess.run(install, check=True)
        uv = str(Path(scratch) / "bin" / "uv")
        write(uv, "requirements.lock", "Everything: runtime and development.", ["--extra=dev", *arguments])
        # The full lock constrains the small one: the container runs what the tests ran.
        full = ["--constraints", "requirements.lock", *arguments]
        write(uv, "requirements.runtime.lock", "Runtime only, for the container.", full)


def write(uv: str, name: str, what: str, options: list[str]) -> None:
    lock = ROOT / name
    compile_lock = [uv, "pip", "compile", "pyproject.toml", *OPTIONS, *options, "--output-file", name]
    subprocess.run(compile_lock, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    lock.write_text(HEADER.format(what=what) + lock.read_text())


if __name__ == "__main__":
    main(sys.argv[1:])
