"""When a second copy of a completion event, with the same id, is allowed. Pure: the caller passes the time.

The sidecar publishes a completion event again when it cannot know that the first copy was confirmed and marked: it
died in between, or the broker or the database was lost. So an outage must lie between the first copy and the second,
and close to the first: an event published long before the outage was marked long ago.
"""

from dataclasses import dataclass, field

# The end of one of these may make an event repeat. Workers and the rest of Attune do not.
EXCUSES = frozenset({"sidecar", "broker", "database"})


@dataclass(slots=True)
class _Loss:
    lost_at: float
    back_at: float | None = None


@dataclass(slots=True)
class Outages:
    """`margin_seconds`: the longest time from the first copy of an event to its mark, or from the return of the broker
    to the arrival of an event here.
    """

    margin_seconds: float
    _losses: dict[str, list[_Loss]] = field(default_factory=dict)

    def lost(self, part: str, at: float) -> None:
        """`part` is about to be killed."""
        if part in EXCUSES:
            self._losses.setdefault(part, []).append(_Loss(lost_at=at))

    def back(self, part: str, at: float) -> None:
        """`part` works again. The first start of one that was never lost changes nothing."""
        for loss in self._losses.get(part, ()):
            if loss.back_at is None:
                loss.back_at = at

    def excuse(self, *, first_at: float, again_at: float) -> bool:
        """Whether a completion event that first arrived at `first_at` may arrive again."""
        return any(
            loss.lost_at <= again_at
            and loss.lost_at - self.margin_seconds <= first_at
            and (loss.back_at is None or first_at <= loss.back_at + self.margin_seconds)
            for losses in self._losses.values()
            for loss in losses
        )
