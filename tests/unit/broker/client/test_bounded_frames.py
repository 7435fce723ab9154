"""The broker proposes a size of frames, dlq-handler agrees on no more than the usual one."""

import pytest
from pamqp import frame
from pamqp.commands import Connection

from dlq_handler.broker.client import bounded_frames


@pytest.mark.parametrize(
    ("proposed", "agreed"), [(0, 131_072), (131_072, 131_072), (2**27, 131_072), (4096, 4096)]
)
def test_no_frame_is_larger_than_usual(proposed: int, agreed: int) -> None:
    bounded_frames.install()
    wire = frame.marshal(Connection.Tune(channel_max=7, frame_max=proposed, heartbeat=60), 0)

    tune = frame.unmarshal(wire)[2]

    assert isinstance(tune, Connection.Tune)
    assert (tune.channel_max, tune.frame_max, tune.heartbeat) == (7, agreed, 60)
