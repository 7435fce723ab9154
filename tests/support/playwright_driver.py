"""What Playwright's driver needs to start: a shared library that a bare Debian lacks, unpacked from its package.

The driver is a Node.js of Playwright's own. pip brings the program, but not the libraries of the system.
"""

import ctypes
import os
import sys

from sandbox.server_programs import packages
from sandbox.server_programs.errors import SourceUnavailable

LIBRARY = "libatomic.so.1"
PACKAGE = "libatomic1"

NO_LIBRARY = """\
Playwright's driver needs {library}, which this machine lacks. Debian's package {package} cannot be unpacked: {closed}
Install it: apt-get install libatomic1 (Debian, Ubuntu), dnf install libatomic (Fedora)."""


async def find_driver_variables() -> dict[str, str]:
    """Environment variables for the driver: none if the machine has the library. Raises SourceUnavailable."""
    # Other systems build Node.js without it.
    if sys.platform != "linux" or is_loadable(LIBRARY):
        return {}
    try:
        root = await packages.unpacked(PACKAGE)
    except SourceUnavailable as closed:
        raise SourceUnavailable(
            NO_LIBRARY.format(library=LIBRARY, package=PACKAGE, closed=closed)
        ) from closed
    before = os.environ.get("LD_LIBRARY_PATH")
    return {"LD_LIBRARY_PATH": os.pathsep.join(filter(None, (packages.library_path(root), before)))}


def is_loadable(library: str) -> bool:
    """The loader itself is asked: it knows LD_LIBRARY_PATH, its cache and its folders."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
