"""The size of a batch on a slow database: halved until it fits, kept, and doubled again when there is room for it."""

from hypothesis import given
from hypothesis.strategies import floats, integers

from dlq_handler.endings.ender import BatchSize


def test_a_batch_that_took_too_long_is_halved_down_to_one() -> None:
    size = BatchSize(500, limit_seconds=30.0)
    seen = []
    for _ in range(11):
        size.too_slow(size.now)
        seen.append(size.now)
    assert seen == [250, 125, 62, 31, 15, 7, 3, 1, 1, 1, 1]


def test_two_batches_of_one_size_that_are_too_slow_halve_it_once() -> None:
    size = BatchSize(500, limit_seconds=30.0)
    size.too_slow(500)
    size.too_slow(500)
    assert size.now == 250


def test_the_size_that_works_is_kept_while_twice_as_much_would_take_too_long() -> None:
    size = BatchSize(500, limit_seconds=30.0)
    size.too_slow(500)
    for _ in range(100):
        size.done(250, 15.0)
    assert size.now == 250


def test_the_size_doubles_after_some_quick_full_batches_in_a_row() -> None:
    size = BatchSize(500, limit_seconds=30.0)
    size.too_slow(250)
    for count, seconds in [(125, 1.0), (125, 1.0), (125, 20.0), (125, 1.0), (125, 1.0), (3, 0.1)]:
        size.done(count, seconds)
    assert size.now == 125, "a slow one began the count again, and one that is not full proves nothing"
    size.done(125, 1.0)
    assert size.now == 250
    for _ in range(9):
        size.done(size.now, 1.0)
    assert size.now == 500, "never beyond what was configured"


def test_the_size_grows_again_however_early_the_transaction_was_cancelled() -> None:
    """As by `pg_cancel_backend`, long before the time limit."""
    size = BatchSize(500, limit_seconds=30.0)
    size.too_slow(500)
    for _ in range(3):
        size.done(250, 0.2)
    assert size.now == 500


def sizes_with_one_refused(items: int, refused: int) -> list[int]:
    """The size of each transaction until all items are done."""
    size, begin, sizes = BatchSize(items, limit_seconds=30.0), 0, []
    while begin < items:
        count = min(size.now, items - begin)
        sizes.append(count)
        if begin <= refused < begin + count:
            size.refused(count)
            begin += count == 1
        else:
            size.done(count, 0.1)
            begin += count
    return sizes


def test_a_refused_item_is_found_by_halving_and_then_the_size_doubles_with_each_success() -> None:
    assert sizes_with_one_refused(64, 20) == [64, 32, 16, 16, 8, 4, 4, 2, 1, 1, 2, 4, 8, 16, 12]


@given(items=integers(1, 1000), refused=integers(0, 1100))
def test_one_refused_item_costs_few_transactions(items: int, refused: int) -> None:
    assert len(sizes_with_one_refused(items, refused)) <= 3 * items.bit_length() + 1


@given(most=integers(1, 1000), milliseconds_a_row=floats(0.1, 5000), limit_seconds=floats(0.5, 60))
def test_on_any_database_batches_get_done_unless_one_row_alone_is_too_slow(
    most: int, milliseconds_a_row: float, limit_seconds: float
) -> None:
    """And few attempts are wasted: as many as halve the size once, then nearly none."""
    size, done, wasted = BatchSize(most, limit_seconds=limit_seconds), 0, 0
    for _ in range(200):
        seconds = size.now * milliseconds_a_row / 1000
        if seconds > limit_seconds:
            size.too_slow(size.now)
            wasted += 1
        else:
            size.done(size.now, seconds)
            done += 1
    if milliseconds_a_row / 1000 > limit_seconds:
        assert (size.now, done) == (1, 0)
    else:
        assert wasted <= 10
