"""Names on Attune's broker: its queues, exchanges and routing keys. Every Attune declares them like this."""

EXECUTIONS_EXCHANGE = "attune.executions"

REQUESTS_QUEUE = "attune.execution.requests.queue"
"""Attune's scheduler consumes requests from this queue."""
COMPLETED_QUEUE = "attune.execution.completed.queue"
"""Attune's executor consumes completion events from this queue. It frees slots and continues workflows by them."""

REQUESTED_KEY = "execution.requested"
COMPLETED_KEY = "execution.completed"
