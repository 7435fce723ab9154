"""The wheel holds the product and its files, and nothing of the sandbox."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from dlq_handler import __version__
from tests.support.compose_file import ROOT


def test_the_wheel_holds_the_product_alone(tmp_path: Path) -> None:
    # A copy: setuptools writes into the folder that it builds, and would find what an earlier build left there.
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("dlq_handler", "sandbox", "tests", "scripts"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))

    options = ["--no-index", "--no-deps", "--no-build-isolation", f"--wheel-dir={tmp_path}", str(source)]
    built = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", *options], capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr

    [wheel] = tmp_path.glob("*.whl")
    held = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in held} == {
        "dlq_handler",
        f"dlq_handler-{__version__}.dist-info",
    }
    files = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "dlq_handler").rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    }
    assert files <= set(held)
