"""The defects of stock Attune that this reference has too, and that can be cured one by one.

All are there unless `SANDBOX_CURED` names them. Comments name them by their numbers. Those with a word for a name have
no number in Attune's contract: they were seen with Attune's own binaries.
"""

from enum import Enum


class Defect(Enum):
    """Each with what goes wrong. What a cure does instead stands where the defect is."""

    D1 = "the dead-letter queue is bound to a direct exchange with '#', so no letter ever arrives in it"
    D2 = "the dead-letter handler fails an execution and publishes no completion event, so its slot stays taken"
    D5 = "a database error while a message is handled drops the message"
    D6 = "with no worker available the request is dropped, and the execution stays requested for ever"
    D8 = "a worker overwrites any status with 'running' and its end, so a late one changes an ended execution"
    D9 = "a worker acknowledges before it works, so a crash loses the dispatch"
    D10 = "a heartbeat never makes an inactive worker active again"
    D12 = "the timeout monitor fails an execution whose message can still be taken and run"
    D13 = "a workflow task that is retried keeps its slot, and the delay of its retry holds up all completion events"
    D14 = "cancelling publishes no end: one that holds a slot keeps it, one in line gets a slot later and keeps it"
    D15 = "the totals of a line are summed up as numeric, which Attune cannot read: no action with a limit ever runs"
    JSON_NULL = (
        "execution.workflow_task is JSON null, not SQL NULL, on every execution that is no workflow task"
    )
    NO_RECONNECT = (
        "a service that loses the broker goes on without consumers and cannot publish, until it is restarted"
    )
    PUBLISH_500 = "a request that cannot be published is answered with 500, and its execution stays requested"
    SIGTERM_AT_ONCE = "SIGTERM ends the executor and the api at once, in the middle of whatever they do"
    NO_HISTORY_ID = "execution_history and worker_history have no id and no sequence"
    NANOSECONDS = "times in messages have nanoseconds"
    NO_WORKFLOW_DEF = "execution.workflow_def is never written, also not on the parent of a workflow"


Cured = frozenset[Defect]
NONE_CURED: Cured = frozenset()


def read_cured(text: str) -> Cured:
    """From a comma list such as "D1, D9". ValueError names what is no defect of ours."""
    names = [name for part in text.split(",") if (name := part.strip().upper())]
    unknown = [name for name in names if name not in Defect.__members__]
    if unknown:
        raise ValueError(f"{', '.join(unknown)}: no such defect; known are {', '.join(Defect.__members__)}")
    return frozenset(Defect[name] for name in names)
