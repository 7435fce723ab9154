"""Workers, and a replica without its loops."""

from tests.integration.workers.conftest import fleet, post

__all__ = ["fleet", "post"]
