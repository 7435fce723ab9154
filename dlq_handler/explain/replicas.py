"""What is known of the sidecars that should look for an execution: is one of them there, and may it act? Pure."""

from dataclasses import dataclass
from datetime import datetime

from dlq_handler.explain.records import clock
from dlq_handler.safety.brake import BrakeMode, BrakeView, in_words, mode_of
from dlq_handler.safety.options import BrakeOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidecars:
    """Those who would act: is one of them there, and may it?"""

    is_led: bool
    lease_ended_at: datetime | None = None
    """Of the last leader, when there is none; None: it gave the lease up, or there never was one."""
    is_monitored: bool = True
    is_shadow: bool = False
    brake: BrakeView
    brake_policy: BrakeOptions

    @property
    def unwatched(self) -> str | None:
        if not self.is_monitored:
            return "dlq_handler.monitor.enabled is false: nobody looks for it"
        if self.is_led:
            return None
        lease = (
            f"the lease ended at {clock(self.lease_ended_at)}"
            if self.lease_ended_at
            else "nobody has the lease"
        )
        return f"no sidecar leads ({lease}): nobody looks for it; is one running?"

    @property
    def brake_mode(self) -> BrakeMode:
        return mode_of(self.brake, self.brake_policy)

    @property
    def notes(self) -> list[str]:
        notes = ["shadow mode: nothing would be changed or announced"] if self.is_shadow else []
        if self.brake_mode.is_tripped:
            notes.append(f"brake: {in_words(self.brake, self.brake_policy)}")
        return notes
