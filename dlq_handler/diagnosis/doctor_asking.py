"""Ask one thing of a server, and make an observation of it, also when there is no answer."""

from collections.abc import Awaitable

from dlq_handler.diagnosis.observation import Looked, Observation
from dlq_handler.errors import Contended, Unavailable


async def told(looked: Looked, asking: Awaitable[Observation]) -> Observation:
    """What `asking` found, or that nobody can tell: one question without an answer must not end the others."""
    try:
        return await asking
    except (Unavailable, Contended) as error:
        return looked.unknown(str(error), "repair that first, then ask again")
