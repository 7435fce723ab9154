"""Rounds of all contenders, interleaved; each is compared with the naive run of its own round.

A machine that is busy with something else for half a minute slows a whole round, not one contender: medians of the
ratios inside a round hold where plain rates do not.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from statistics import median

from benchmarks.contender import Measurement, measure
from benchmarks.ours import measure_ours
from benchmarks.world import Stage, World

NAIVE, OURS = "naive", "ours"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    name: str
    text: str
    run: Callable[[Stage], Awaitable[Measurement]]
    share: float
    """Of the letters of a round: a quick contender needs more of them to be timed well."""


def _limit(name: str, text: str) -> Contender:
    return Contender(name=name, text=text, run=partial(_measure_limit, name=name), share=0.5)


async def _measure_limit(stage: Stage, name: str) -> Measurement:
    return await measure(stage, "benchmarks.limits", name)


async def _measure_naive(stage: Stage, driver: str) -> Measurement:
    return await measure(stage, "benchmarks.naive", driver)


CONTENDERS = (
    Contender(
        name=NAIVE,
        text="naive: SELECT, UPDATE, commit, ack, one at a time",
        run=partial(_measure_naive, driver="sqlalchemy"),
        share=0.1,
    ),
    Contender(
        name="naive-bare",
        text="naive on the bare driver, without a transaction",
        run=partial(_measure_naive, driver="asyncpg"),
        share=0.1,
    ),
    Contender(name=OURS, text="ours: the whole job, the real process", run=measure_ours, share=1.0),
    _limit("aio-pika", "limit: aio-pika, take and ack only"),
    _limit("aiormq", "limit: aiormq, take and ack only"),
    _limit("intake", "limit: our intake, read and settle only"),
    _limit("publishing", "limit: our publisher, confirmed completion events only"),
    _limit("statements", "limit: our statements only, on PostgreSQL"),
)


@dataclass(frozen=True, slots=True)
class Results:
    """What each contender did, round by round."""

    measured: dict[str, list[Measurement]]

    def per_second(self, name: str) -> float:
        return median(one.per_second for one in self.measured[name])

    def cpu_us(self, name: str) -> float:
        return median(one.cpu_us_per_letter for one in self.measured[name])

    def ratios(self, name: str) -> list[float]:
        """To the naive one, round by round, ascending."""
        pairs = zip(self.measured[name], self.measured[NAIVE], strict=True)
        return sorted(one.per_second / naive.per_second for one, naive in pairs)


async def run_rounds(
    world: World, *, rounds: int, letters: int, print_line: Callable[[str], None]
) -> Results:
    measured: dict[str, list[Measurement]] = {contender.name: [] for contender in CONTENDERS}
    for number in range(rounds):
        # Forwards and backwards in turn, so that growth in the course of a round favors no contender.
        for contender in CONTENDERS if number % 2 == 0 else reversed(CONTENDERS):
            count = max(100, int(letters * contender.share))
            async with world.stage(count) as stage:
                one = await contender.run(stage)
            measured[contender.name].append(one)
            print_line(
                f"round {number + 1}/{rounds}: {contender.name}: {one.per_second:.0f} letters/s ({count} letters)"
            )
    return Results(measured)
