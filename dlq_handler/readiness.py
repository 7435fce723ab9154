"""Is the sidecar doing its job right now? One answer per part, kept up to date by those who know, read by /readyz.

A part that has not reported yet is not ready: never green by default.
"""

from dataclasses import dataclass, field

from dlq_handler.heartbeat import Liveness

PARTS = ("broker", "consumer", "database", "schema")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    ok: bool
    detail: str


@dataclass(slots=True)
class Readiness:
    """Written by the services, read by the listeners in another thread.

    Each change replaces a whole dictionary, so that a reader never sees one that changes under it.
    """

    checks: dict[str, Check] = field(
        default_factory=lambda: {part: Check(ok=False, detail="not checked yet") for part in PARTS}
    )
    notes: dict[str, str] = field(default_factory=dict)
    """Facts an operator should see that do not make us unready, such as another consumer."""
    liveness: Liveness = field(default_factory=Liveness)
    """Do the loops turn? Read by /healthz: a server that is away makes a replica unready, never unhealthy."""

    def report(self, part: str, *, ok: bool, detail: str) -> None:
        self.checks = self.checks | {part: Check(ok=ok, detail=detail)}

    def note(self, topic: str, text: str | None) -> None:
        others = {one: about for one, about in self.notes.items() if one != topic}
        self.notes = others if text is None else others | {topic: text}

    @property
    def is_ready(self) -> bool:
        return all(check.ok for check in self.checks.values())
