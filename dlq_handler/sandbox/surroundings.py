"""The environment for a sidecar that the sandbox starts."""

import os
from collections.abc import Mapping


def surroundings(settings: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment without any setting of the sidecar, and these.

    A shell in which somebody runs the real one may export its broker: a demo that inherits that variable would take
    the real dead letters and judge them by a database that is thrown away.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.upper().startswith("ATTUNE")}
    return inherited | dict(settings)
