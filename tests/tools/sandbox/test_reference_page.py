"""docs/reference/reference-attune.md says what there is."""

import re
from pathlib import Path

from sandbox.attune import environment
from sandbox.attune.actions import ACTIONS
from sandbox.attune.defects import Defect

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "reference-attune.md").read_text()


def test_the_page_names_every_defect_action_and_variable() -> None:
    _, _, defects = PAGE.partition("\n## Defects\n")
    assert re.findall(r"^\| `?([A-Z][A-Z0-9_]+)`? \|", defects, re.MULTILINE) == list(Defect.__members__)
    assert {ref for ref in ACTIONS if f"`{ref}`" not in PAGE} == set()
    source = Path(environment.__file__).read_text()
    variables = set(re.findall(r'"((?:ATTUNE__|SANDBOX_)\w+)"', source))
    assert set(re.findall(r"`((?:ATTUNE__|SANDBOX_)\w+)`", PAGE)) == variables
