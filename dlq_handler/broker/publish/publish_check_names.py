"""The names of the exchange and the queue that a publish check makes for each connection, and that end with it."""

PUBLISH_CHECK_PREFIX = "dlq_handler.publish_check."
PUBLISH_CHECK_PATTERN = r"dlq_handler\.publish_check\.[0-9a-f\-]+"
"""As a part of a permission of the broker's user."""
