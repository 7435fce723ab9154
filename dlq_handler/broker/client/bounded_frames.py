"""Agree with the broker on frames of at most 128 KiB.

aiormq holds one frame in memory and takes the `frame_max` that the broker proposes: 128 KiB by default, but a broker
may be configured for more, or for no limit (0). A body of 128 MB would then arrive in one piece. The protocol lets the
client choose a smaller size, but aiormq has no setting for it.
"""

from pamqp.base import Frame
from pamqp.commands import Connection

MAX_FRAME_BYTES = 131_072


def install() -> None:
    """Replace the decoder of the broker's proposal. Calling it again changes nothing."""
    Connection.Tune.unmarshal = _unmarshal_tune  # type: ignore[method-assign,assignment]  # the hook


def _unmarshal_tune(tune: Connection.Tune, data: bytes) -> None:
    Frame.unmarshal(tune, data)
    tune.frame_max = min(tune.frame_max or MAX_FRAME_BYTES, MAX_FRAME_BYTES)
