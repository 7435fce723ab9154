"""Which host names and origins are ours. Pure.

A page of another site can make a browser ask us under a name of its own that resolves to this machine; only the Host
header tells.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]+)?")
THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Origins:
    hosts: Collection[str]
    """Names without ports: whoever decides what a name resolves to cannot decide what another port of it is."""
    external_url: str | None = None

    @classmethod
    def of(cls, *, host: str, external_url: str | None) -> "Origins":
        external = urlsplit(external_url).hostname if external_url else None
        named = {host.lower(), *((external,) if external else ())} - {"0.0.0.0", "::"}  # noqa: S104  compared with
        return cls(hosts=THIS_MACHINE | named, external_url=external_url)

    def has_host(self, header: str) -> bool:
        found = _HOST.fullmatch(header)
        return found is not None and found["name"].strip("[]").lower() in self.hosts

    def is_own(self, origin: str, *, host_header: str) -> bool:
        """Whether a page of ours can have sent it: by the address that people use, or the one that was asked."""
        if origin == self.external_url:
            return True
        # A proxy may speak https where we are asked by http, so the scheme is not compared.
        return self.has_host(host_header) and origin.partition("://")[2].lower() == host_header.lower()

    @property
    def is_secure(self) -> bool:
        """Whether browsers reach us by https, so that a cookie may be kept to it."""
        return bool(self.external_url) and str(self.external_url).startswith("https://")
