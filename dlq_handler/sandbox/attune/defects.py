"""The defects of stock Attune that this reference has too, and that can be cured one by one.

All are there unless `SANDBOX_CURED` names them. Comments name them by their numbers.
"""

from enum import Enum


class Defect(Enum):
    """Each with what goes wrong. What a cure does instead stands where the defect is."""

    D1 = "the dead-letter queue is bound to a direct exchange with '#', so no letter ever arrives in it"
    D2 = "the dead-letter handler fails an execution and announces it to nobody, so its slot stays taken"
    D5 = "a database error while a message is handled drops the message"
    D6 = "with no worker available the request is dropped, and the execution stays requested for ever"
    D8 = "a worker writes 'running' and the end over whatever is there, so a late one brings the dead to life"
    D9 = "a worker acknowledges before it works, so a crash loses the dispatch"
    D10 = "a heartbeat never makes an inactive worker active again"
    D12 = "the timeout monitor fails an execution whose message can still be taken and run"


Cured = frozenset[Defect]
NONE_CURED: Cured = frozenset()


def read_cured(text: str) -> Cured:
    """From a comma list such as "D1, D9". ValueError names what is no defect of ours."""
    names = [name for part in text.split(",") if (name := part.strip().upper())]
    unknown = [name for name in names if name not in Defect.__members__]
    if unknown:
        raise ValueError(f"{', '.join(unknown)}: no such defect; known are {', '.join(Defect.__members__)}")
    return frozenset(Defect[name] for name in names)
