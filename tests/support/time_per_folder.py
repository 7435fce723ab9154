"""Where a run of the suite spent its time: the seconds of each folder's tests, summed, the longest first."""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import PurePosixPath

import pytest


def seconds_per_folder(reports: Iterable[pytest.TestReport]) -> list[tuple[str, float, int]]:
    """Folder, seconds (fixtures included) and number of tests."""
    seconds: defaultdict[str, float] = defaultdict(float)
    tests: defaultdict[str, set[str]] = defaultdict(set)
    for report in reports:
        folder = folder_of(report.nodeid)
        seconds[folder] += report.duration
        tests[folder].add(report.nodeid)
    return sorted(
        ((folder, spent, len(tests[folder])) for folder, spent in seconds.items()), key=lambda row: -row[1]
    )


def folder_of(nodeid: str) -> str:
    """tests/unit as one, integration tests by their subject."""
    folders = PurePosixPath(nodeid.partition("::")[0]).parts[:-1]
    return "/".join(folders[:3] if "integration" in folders else folders[:2])
