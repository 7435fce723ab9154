"""The unpacked packages: whole or not there, fetched once. apt and dpkg are played by scripts, as on a
Debian.
"""

import asyncio
from pathlib import Path

import pytest

from sandbox.server_programs import packages
from sandbox.server_programs.errors import SourceUnavailable

APT_GET = """#!/bin/sh
echo "$@" >> "{log}"
case "$*" in
    *--simulate*) echo 'Inst adduser (1)'; echo 'Inst libfine (1)'; echo 'Inst thing (2)' ;;
    *download*) {download} ;;
esac
"""
DPKG_DEB = """#!/bin/sh
echo "dpkg-deb $@" >> "{log}"
mkdir -p "$3/usr/bin" && cp "$2" "$3/usr/bin/"
"""
DOWNLOADS = "touch thing.deb libfine.deb"


def play_debian(folder: Path, monkeypatch: pytest.MonkeyPatch, download: str = DOWNLOADS) -> Path:
    log = folder / "log"
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    for name, text in (("apt-get", APT_GET), ("dpkg-deb", DPKG_DEB)):
        script = programs / name
        script.write_text(text.format(log=log, download=download))
        script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    return log


async def test_what_the_package_needs_is_unpacked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = play_debian(tmp_path, monkeypatch)
    root = await packages.unpacked("thing")
    assert sorted(path.name for path in root.glob("usr/bin/*")) == ["libfine.deb", "thing.deb"]
    asked = log.read_text()
    assert "download libfine thing" in asked
    assert await packages.unpacked("thing") == root
    assert log.read_text() == asked


async def test_what_is_wanted_always_is_unpacked_even_where_the_machine_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = play_debian(tmp_path, monkeypatch)
    await packages.unpacked("thing", always=("fonts", "thing"))
    assert "download libfine thing fonts\n" in log.read_text()


async def test_two_at_once_fetch_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = play_debian(tmp_path, monkeypatch)
    async with asyncio.TaskGroup() as both:
        both.create_task(packages.unpacked("thing"))
        both.create_task(packages.unpacked("thing"))
    assert log.read_text().count("download") == 1


async def test_a_failed_download_leaves_nothing_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play_debian(tmp_path, monkeypatch, download="touch thing.deb; echo 'no route to mirror' >&2; exit 100")
    with pytest.raises(SourceUnavailable, match="no route to mirror"):
        await packages.unpacked("thing")
    assert not [path for path in packages.cache_folder().iterdir() if path.suffix != ".lock"]
    play_debian(tmp_path, monkeypatch)
    assert (await packages.unpacked("thing")).exists()


async def test_what_repairs_the_files_sees_them_before_anyone_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play_debian(tmp_path, monkeypatch)

    def repair(unpacked: Path, final: Path) -> None:
        assert (unpacked / "usr" / "bin" / "thing.deb").exists()
        assert not final.exists()

    await packages.unpacked("thing", repair)


async def test_elsewhere_than_on_debian_this_way_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SourceUnavailable, match="not a Debian"):
        await packages.unpacked("thing")
