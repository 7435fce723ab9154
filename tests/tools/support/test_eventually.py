"""The wait that all other tests trust."""

from collections.abc import Iterator

import pytest

from tests.support.eventually import eventually


async def test_returns_the_first_true_answer() -> None:
    answers: Iterator[object] = iter([None, 0, [], "found", "too late"])
    assert await eventually(lambda: next(answers), every=0) == "found"


async def test_waits_for_an_awaitable_check() -> None:
    answers = iter([False, True])

    async def check() -> bool:
        return next(answers)

    assert await eventually(check, every=0)


async def test_an_assertion_that_never_holds_is_the_failure() -> None:
    def check() -> bool:
        assert [1] == [2]
        return True

    with pytest.raises(AssertionError, match=r"\[1\] == \[2\]"):
        await eventually(check, timeout=0)


async def test_says_what_it_saw_last() -> None:
    with pytest.raises(AssertionError, match="still 0 after 0 s"):
        await eventually(lambda: 0, timeout=0)


async def test_a_bug_in_the_check_passes_through() -> None:
    def check() -> bool:
        raise KeyError("bug")

    with pytest.raises(KeyError):
        await eventually(check)
