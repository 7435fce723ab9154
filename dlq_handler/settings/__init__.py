"""Settings of the sidecar, out of YAML files and variables.

Read once, at the edge; inside, small policies are passed.
"""

from dlq_handler.settings.loader import Loaded, load
from dlq_handler.settings.model import Settings
from dlq_handler.settings.problems import ConfigError, Problem

__all__ = ["ConfigError", "Loaded", "Problem", "Settings", "load"]
