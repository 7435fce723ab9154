"""Where Chromium is: named by DLQ_TEST_CHROMIUM, on PATH, or unpacked from Debian's packages.

Unpacked, it brings the libraries this machine lacks and fonts of its own: pictures look the same on every machine,
and a machine without fonts shows letters instead of boxes. What is found has been started once and answered.
"""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from sandbox.server_programs import packages
from sandbox.server_programs.errors import SourceUnavailable
from sandbox.server_programs.program import output_of

VARIABLE = "DLQ_TEST_CHROMIUM"
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Chromium without a window to draw in: the same engine, 20 MB and a desktop's libraries less to fetch.
PACKAGE = "chromium-headless-shell"
FONTS = ("fonts-inter", "fonts-dejavu-core")
FONT_SETTINGS = "fonts.conf"

# Nothing is asked of the network but the pages under test: without these Chromium looks for its maker at every start.
ARGUMENTS = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
)

NO_CHROMIUM = """\
No Chromium to test the pages with. Tried, in this order:
{tried}
One of these helps: {variable}=/path/to/chromium, apt-get install chromium (Debian), or a way to Debian's packages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChromiumProgram:
    path: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    """What the environment needs beside what it holds: where the unpacked libraries and fonts are."""

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, **self.variables}

    @classmethod
    async def find(cls) -> Self:
        """Raises SourceUnavailable with each source that was tried, or if the named program does not work."""
        if named := os.environ.get(VARIABLE):
            try:
                return await cls._started(Path(named))
            except SourceUnavailable as broken:
                raise SourceUnavailable(f"{VARIABLE}={named}, but that does not start: {broken}") from broken
        tried: list[str] = []
        for name in NAMES:
            if found := shutil.which(name):
                try:
                    return await cls._started(Path(found))
                except SourceUnavailable as broken:
                    # Ubuntu's chromium-browser is a script that only says where to get one.
                    tried.append(f"  - {found}: {broken}")
        try:
            return await cls.of_packages()
        except SourceUnavailable as closed:
            tried += ["  - none on PATH"] if not tried else []
            tried.append(f"  - Debian's package {PACKAGE}, unpacked: {closed}")
            raise SourceUnavailable(NO_CHROMIUM.format(tried="\n".join(tried), variable=VARIABLE)) from closed

    @classmethod
    async def of_packages(cls) -> Self:
        root = await packages.unpacked(PACKAGE, write_font_settings, always=FONTS)
        return await cls._started(
            root / "usr" / "lib" / "chromium" / PACKAGE,
            {
                "LD_LIBRARY_PATH": library_path(root),
                "FONTCONFIG_FILE": str(root / FONT_SETTINGS),
            },
        )

    @classmethod
    async def _started(cls, path: Path, variables: Mapping[str, str] | None = None) -> Self:
        found = cls(path=path, variables=variables or {})
        try:
            await output_of(str(path), "--version", environment=found.environment, timeout=60)
        except (OSError, TimeoutError) as broken:
            raise SourceUnavailable(f"{path} does not start: {broken}") from broken
        return found


def library_path(root: Path) -> str:
    """libpulse knows the folder of its own part by an absolute path, which is not where we unpacked it."""
    inner = [str(folder) for folder in sorted(root.glob("usr/lib/*-linux-*/pulseaudio"))]
    return os.pathsep.join([packages.library_path(root), *inner])


def write_font_settings(unpacked: Path, final: Path) -> None:
    """Of the machine's own fonts none is used: a page that fits here fits in the same way on every machine."""
    (unpacked / FONT_SETTINGS).write_text(f"""\
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig>
  <dir>{final}/usr/share/fonts</dir>
  <cachedir prefix="xdg">fontconfig</cachedir>
  <alias><family>system-ui</family><prefer><family>Inter</family><family>DejaVu Sans</family></prefer></alias>
  <alias><family>sans-serif</family><prefer><family>Inter</family><family>DejaVu Sans</family></prefer></alias>
  <alias><family>ui-monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
  <alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
</fontconfig>
""")
