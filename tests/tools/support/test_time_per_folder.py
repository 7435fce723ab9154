"""The suite tells where its time went."""

import pytest

from tests.support.time_per_folder import seconds_per_folder


def a_report(nodeid: str, *, when: str, duration: float) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid=nodeid,
        location=("", 0, ""),
        keywords={},
        outcome="passed",
        longrepr=None,
        when=when,  # type: ignore[arg-type]  # one of three words, which the caller writes
        duration=duration,
    )


def test_setup_and_call_of_a_test_are_summed_by_folder_and_the_longest_comes_first() -> None:
    reports = [
        a_report("tests/unit/domain/test_a.py::test_x", when="call", duration=1),
        a_report("tests/unit/test_b.py::test_y", when="call", duration=2),
        a_report("tests/integration/store/test_c.py::test_z", when="setup", duration=30),
        a_report("tests/integration/store/test_c.py::test_z", when="call", duration=10),
        a_report("tests/integration/broker/test_d.py::test_z", when="call", duration=5),
    ]
    assert seconds_per_folder(reports) == [
        ("tests/integration/store", 40, 1),
        ("tests/integration/broker", 5, 1),
        ("tests/unit", 3, 2),
    ]
