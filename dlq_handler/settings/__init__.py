"""Settings, from YAML files and environment variables. Read once; a section is passed to the service that uses it."""

from dlq_handler.settings.keys import ConfigError, Problem
from dlq_handler.settings.loader import Loaded, load
from dlq_handler.settings.model import Settings

__all__ = ["ConfigError", "Loaded", "Problem", "Settings", "load"]
