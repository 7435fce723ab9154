"""Settings, from YAML files and environment variables. Read once; a section is passed to the service that uses it."""

from dlq_handler.settings.loader import Loaded, load
from dlq_handler.settings.model import Settings
from dlq_handler.settings.problems import ConfigError, Problem

__all__ = ["ConfigError", "Loaded", "Problem", "Settings", "load"]
