"""Links on a page of a moment in the past: where they lead shows that moment too, or says that it does not. Pure."""

from datetime import datetime
from urllib.parse import urlencode, urlsplit

from dlq_handler.surface.dashboard.chart_scale import Window
from dlq_handler.surface.dashboard.words import iso

# They know only today. With the moment in their address they say so.
_OF_NOW = ("/workers", "/topology")


def link_of(href: str, *, at: datetime | None, here: str, window: Window) -> str:
    """`at` None: of now, and nothing changes. `here`: this page, at this moment."""
    split = urlsplit(href)
    if at is None:
        return href
    if split.path == "/":
        return f"{here}#{split.fragment}" if split.fragment else here
    if split.path == "/letters":
        asked = urlencode({"since": iso(window.since), "until": iso(at)})
    elif split.path in _OF_NOW:
        asked = urlencode({"at": iso(at)})
    else:
        return href
    return split._replace(query=f"{split.query}&{asked}" if split.query else asked).geturl()
