"""Workers, and a replica without its loops, for messages that were not dead-lettered."""

from tests.integration.workers.conftest import fleet, post

__all__ = ["fleet", "post"]
