"""Names on Attune's broker and its message types. Every Attune declares them like this.

Some are defaults of settings; docs/reference/host-contract.md says which are fixed.
"""

EXECUTIONS_EXCHANGE = "attune.executions"
EVENTS_EXCHANGE = "attune.events"
NOTIFICATIONS_EXCHANGE = "attune.notifications"
DEAD_LETTER_EXCHANGE = "attune.dlx"

STOCK_QUEUE = "attune.dlx.queue"
"""Attune's own dead-letter queue, bound with `STOCK_BINDING_KEY`. Its executor consumes it."""
STOCK_BINDING_KEY = "#"

REQUESTS_QUEUE = "attune.execution.requests.queue"
"""Attune's scheduler consumes requests from this queue."""
COMPLETED_QUEUE = "attune.execution.completed.queue"
"""Attune's executor consumes completion events from this queue. It frees slots and continues workflows by them."""
ENFORCEMENTS_QUEUE = "attune.enforcements.queue"

REQUESTED_KEY = "execution.requested"
COMPLETED_KEY = "execution.completed"
CANCEL_KEY_PATTERN = "execution.cancel.worker.{id}"
STATUS_CHANGED_KEY = "execution.status.changed"
INQUIRY_RESPONDED_KEY = "inquiry.responded"
ENFORCEMENTS_PATTERN = "enforcement.#"
_ENFORCEMENT_KEY = "enforcement.created"

# A stock consumer on STOCK_QUEUE takes any ExecutionRequested for an expired dispatch. It would fail healthy executions
# over a rejected scheduler request, so these keys are never bound there.
OTHER_KEYS = (
    REQUESTED_KEY,
    COMPLETED_KEY,
    STATUS_CHANGED_KEY,
    _ENFORCEMENT_KEY,
    INQUIRY_RESPONDED_KEY,
)
"""Routing keys of Attune's dead letters that are no dispatches."""

KEYS_OF_PATTERNS = {(ENFORCEMENTS_QUEUE, ENFORCEMENTS_PATTERN): (_ENFORCEMENT_KEY,)}
"""By queue and the pattern that binds it: every key that Attune publishes and that matches the pattern."""

DISPATCH_MESSAGE_TYPE = "ExecutionRequested"
"""Of a dispatch to a worker, and of a request to the scheduler."""
COMPLETED_MESSAGE_TYPE = "ExecutionCompleted"
