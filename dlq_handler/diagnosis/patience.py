"""What a sidecar lacks, from look to look: a consumer that it opens, a lease that it takes. Pure.

After a start, an outage or a stop it lacks them for seconds, and gets them by itself: that is no problem until it has
lasted for longer than it may take. Counted from the first look that shows it, while nothing else explains it.
"""

from dataclasses import dataclass

from dlq_handler.diagnosis.own import is_leaderless, is_unconsumed
from dlq_handler.diagnosis.view import OwnSeen, View


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    opens_within_seconds: float
    leads_within_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lacks:
    """By the process clock; None: it lacks nothing, or nobody can tell."""

    unconsumed_since: float | None = None
    leaderless_since: float | None = None

    def after(self, view: View, at: float) -> "Lacks":
        return Lacks(
            unconsumed_since=_since(self.unconsumed_since, at) if is_unconsumed(view) else None,
            leaderless_since=_since(self.leaderless_since, at) if is_leaderless(view) else None,
        )

    def seen(self, at: float, policy: Patience) -> OwnSeen:
        return OwnSeen(
            opening_seconds=at - _since(self.unconsumed_since, at),
            opens_within_seconds=policy.opens_within_seconds,
            leaderless_seconds=at - _since(self.leaderless_since, at),
            leads_within_seconds=policy.leads_within_seconds,
        )


def _since(before: float | None, at: float) -> float:
    return at if before is None else before
