"""What Playwright's driver is started with on a machine that lacks its library. tests/browser starts a real one."""

import sys
from pathlib import Path

import pytest

from sandbox.server_programs import packages
from sandbox.server_programs.errors import SourceUnavailable
from tests.support import playwright_driver
from tests.support.chromium_program import ChromiumProgram
from tests.support.fetch_browser import fetch_browser
from tests.support.playwright_driver import find_driver_variables, is_loadable

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux's Node.js needs the library")


@pytest.fixture(autouse=True)
def machine_without_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playwright_driver, "LIBRARY", "libnowhere.so.1")
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)


def play_debian(folder: Path) -> Path:
    """Where the library of the package is unpacked."""
    programs = folder / "programs"
    programs.mkdir()
    simulate = f'*--simulate*) echo "Inst {playwright_driver.PACKAGE} (1)" ;;'
    apt_get = f'case "$*" in {simulate} *download*) : >some.deb ;; esac'
    dpkg_deb = 'mkdir -p "$3/usr/lib/x86_64-linux-gnu"'
    for name, text in (("apt-get", apt_get), ("dpkg-deb", dpkg_deb)):
        (programs / name).write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{text}\n")
        (programs / name).chmod(0o755)
    return packages.cache_folder() / playwright_driver.PACKAGE / "usr" / "lib" / "x86_64-linux-gnu"


async def test_machine_with_the_library_needs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playwright_driver, "LIBRARY", "libc.so.6")
    assert await find_driver_variables() == {}


async def test_library_is_unpacked_and_the_driver_led_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library_folder = play_debian(tmp_path)
    assert await find_driver_variables() == {"LD_LIBRARY_PATH": str(library_folder)}
    assert library_folder.is_dir()
    monkeypatch.setenv("LD_LIBRARY_PATH", "/mine")
    assert await find_driver_variables() == {"LD_LIBRARY_PATH": f"{library_folder}:/mine"}


async def test_setup_for_the_browser_tests_fetches_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library_folder = play_debian(tmp_path)

    async def closed(*_: object) -> None:
        raise SourceUnavailable("closed for this test")

    monkeypatch.setattr(ChromiumProgram, "find", closed)
    await fetch_browser()
    assert library_folder.is_dir()


async def test_without_a_way_to_packages_the_error_says_what_to_install() -> None:
    with pytest.raises(
        SourceUnavailable,
        match=r"needs libnowhere\.so\.1(.|\n)*not a Debian(.|\n)*apt-get install libatomic1",
    ):
        await find_driver_variables()


def test_loader_knows_which_library_it_can_load() -> None:
    assert is_loadable("libc.so.6")
    assert not is_loadable("libnowhere.so.1")
