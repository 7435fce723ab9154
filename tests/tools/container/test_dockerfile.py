"""The Dockerfile by its linter, and by what we promise of it; `./run image-check` builds and runs it."""

import re
import subprocess
import sys
from pathlib import Path

from dlq_handler import __version__
from tests.support.compose_file import DOCKERFILE, PRODUCT, ROOT, of_dockerfile, services, stage_of_dockerfile

PRODUCT_STAGE = stage_of_dockerfile(PRODUCT)


def test_the_linter_has_nothing_to_say() -> None:
    hadolint = str(Path(sys.executable).with_name("hadolint"))
    lint = [hadolint, "--disable-ignore-pragma", "--failure-threshold=style", str(DOCKERFILE)]
    linted = subprocess.run(lint, capture_output=True, text=True, check=False)
    assert (linted.returncode, linted.stdout + linted.stderr) == (0, "")


def test_nothing_is_built_in_the_image_that_runs() -> None:
    instructions = re.findall(r"(?m)^([A-Z]+) ", PRODUCT_STAGE)
    assert "RUN" not in instructions
    assert instructions.count("COPY") == 1


def test_a_build_without_a_target_is_the_product_without_the_sandbox() -> None:
    assert DOCKERFILE.read_text().rpartition("\nFROM ")[2].strip() == PRODUCT
    assert "sandbox" not in PRODUCT_STAGE
    builds = {name: service.words["build"] for name, service in services({}).items() if service.is_ours}
    assert "target" not in builds.pop("dlq-handler")
    assert {build["target"] for build in builds.values()} == {"sandbox"}


def test_it_is_a_plain_user_by_number() -> None:
    user = re.search(r"(?m)^USER (\d+):(\d+)$", PRODUCT_STAGE)
    assert user
    assert "0" not in user.groups()


def test_programs_start_without_a_shell_so_that_signals_reach_them() -> None:
    assert of_dockerfile("ENTRYPOINT") == ("dlq-handler",)
    assert of_dockerfile("CMD") == ("run",)
    assert "STOPSIGNAL SIGTERM" in PRODUCT_STAGE


def test_the_label_tells_the_version() -> None:
    assert f'image.version="{__version__}"' in PRODUCT_STAGE


def test_what_is_copied_is_let_through_and_nothing_else() -> None:
    copied = set(re.findall(r"(?m)^COPY (?!--from)(.*) \S+$", DOCKERFILE.read_text()))
    allowed = re.findall(r"(?m)^!(.*)$", (ROOT / ".dockerignore").read_text())
    assert set(" ".join(copied).split()) == set(allowed)
    assert (ROOT / ".dockerignore").read_text().splitlines()[1] == "*"
