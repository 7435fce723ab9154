"""The chart's two axes: minutes gathered into bars, and a round number at the top. Pure."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from dlq_handler.dead_letters.group import MinuteCount

# As they are stacked, from the bottom. Others, such as `rescued`, share the last one's hue, and keep their name.
HUES = ("expired", "rejected", "maxlen", "delivery_limit", "none")


def hue_of(reason: str) -> str:
    return reason if reason in HUES else "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A stretch of time, cut into bars of equal length; it begins and ends between two of them."""

    since: datetime
    bar_seconds: int
    bars: int

    @property
    def until(self) -> datetime:
        return self.since + timedelta(seconds=self.bar_seconds * self.bars)

    def percent(self, when: datetime) -> float:
        """Where a moment lies. What is outside lies at the nearer edge."""
        share = (when - self.since).total_seconds() / (self.bar_seconds * self.bars)
        return round(100 * min(1.0, max(0.0, share)), 2)

    def bar_of(self, when: datetime) -> int | None:
        place = math.floor((when - self.since).total_seconds() / self.bar_seconds)
        return place if 0 <= place < self.bars else None

    def start_of(self, bar: int) -> datetime:
        return self.since + timedelta(seconds=bar * self.bar_seconds)


def window_until(until: datetime, *, bar_seconds: int, bars: int) -> Window:
    """The one whose last bar holds `until`. Bars begin at round times: the same minute is always the same bar."""
    last = math.floor(until.timestamp() / bar_seconds) * bar_seconds
    since = datetime.fromtimestamp(last - (bars - 1) * bar_seconds, UTC)
    return Window(since=since, bar_seconds=bar_seconds, bars=bars)


def gather(minutes: Iterable[MinuteCount], window: Window) -> Mapping[int, Mapping[str, int]]:
    """Bar → reason → letters, for the bars that have any."""
    counts: dict[int, dict[str, int]] = defaultdict(dict)
    for one in minutes:
        bar = window.bar_of(one.minute)
        if bar is not None and one.letters:
            counts[bar][one.reason] = counts[bar].get(one.reason, 0) + one.letters
    return counts


def round_top(highest: float) -> tuple[int, int]:
    """The number at the top of the axis, and the step between its lines: three to five of them."""
    wanted = max(1.0, highest)
    size = 10 ** math.floor(math.log10(wanted))
    for step in (size / 5, size / 4, size / 2, size, 2 * size):
        if step >= 1 and step == int(step) and math.ceil(wanted / step) <= 5:
            return math.ceil(wanted / step) * int(step), int(step)
    return math.ceil(wanted / size) * size, size


def time_ticks(window: Window, every_seconds: int) -> Sequence[datetime]:
    first = math.ceil(window.since.timestamp() / every_seconds) * every_seconds
    last = int(window.until.timestamp())
    return [datetime.fromtimestamp(at, UTC) for at in range(first, last + 1, every_seconds)]
