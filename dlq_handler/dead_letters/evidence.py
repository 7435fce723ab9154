"""What a decision about a letter rests on, as JSON kept with its record: for whoever asks afterwards if it was right.

Only what the letter's own columns do not say: the row and the worker as they were seen at that moment.
"""

from collections.abc import Mapping

from dlq_handler.dead_letters.decide import Circumstances, worker_in_question
from dlq_handler.dead_letters.letter import DeadLetter
from dlq_handler.host.execution import Execution, ExecutionStatus
from dlq_handler.host.worker import Worker
from dlq_handler.text import rounded


def letter_evidence(
    letter: DeadLetter,
    execution: Execution | None,
    workers: Mapping[int, Worker],
    circumstances: Circumstances,
) -> dict[str, object]:
    if execution is None:
        return {}
    seen: dict[str, object] = {
        "status": execution.status.value,
        "updated": execution.updated.isoformat(),
        "worker": execution.worker_id,
    }
    if letter.rescue is not None:
        seen["rescue"] = {
            "worker": letter.rescue.worker_id,
            "heartbeat_age_seconds": rounded(letter.rescue.heartbeat_age_seconds),
            "other_consumers": letter.rescue.other_consumers,
        }
    elif letter.death is not None:
        seen["x_death"] = {"count": letter.death.count, "exchange": letter.death.exchange}
    if execution.status is ExecutionStatus.RUNNING:
        worker_id = worker_in_question(letter, execution, circumstances.names)
        worker = workers.get(worker_id) if worker_id is not None else None
        seen["worker_in_question"] = worker_id
        seen["heartbeat_age_seconds"] = rounded(worker.heartbeat_age_seconds) if worker else None
        seen["unavailable_after_seconds"] = circumstances.availability.unavailable_after_seconds
        seen["link_age_seconds"] = rounded(circumstances.link_age_seconds)
    return seen
