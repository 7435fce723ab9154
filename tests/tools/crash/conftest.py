"""The servers of the crash tests: private ones, which a test may kill."""

from tests.crash.conftest import attune_template, postgres, rabbitmq

__all__ = ["attune_template", "postgres", "rabbitmq"]
