"""The user a server runs as when it refuses root."""

import os
import pwd
from dataclasses import dataclass
from typing import Self

from sandbox.server_programs.errors import SourceUnavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    uid: int
    gid: int

    @classmethod
    def unprivileged(cls) -> Self | None:
        """None where we are a plain user already."""
        if os.geteuid() != 0:
            return None
        for name in ("postgres", "nobody"):
            try:
                entry = pwd.getpwnam(name)
            except KeyError:
                continue
            return cls(uid=entry.pw_uid, gid=entry.pw_gid)
        raise SourceUnavailable(
            "PostgreSQL refuses to run as root, and there is neither a user 'postgres' nor 'nobody'"
        )
