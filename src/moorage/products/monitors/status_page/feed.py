"""The status page as an Atom feed (RFC 4287): one entry for each incident, updated when it ends."""

from __future__ import annotations

from html import escape
from uuid import NAMESPACE_URL, uuid5

from moorage.core.kit.clock import to_wire
from moorage.products.monitors.status_page.history import Episode
from moorage.products.monitors.status_page.service import Status

CONTENT_TYPE = b"application/atom+xml; charset=utf-8"
MAX_ENTRIES = 50


def render(status: Status, path: str) -> str:
    """Return the feed of the page at a path. Links are relative: the gateway and the API have different addresses."""
    episodes = status.episodes[:MAX_ENTRIES]
    updated = max((each.ended or each.began for each in episodes), default=status.first_at)
    entries = "".join(_entry(each, path) for each in episodes)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<feed xmlns="http://www.w3.org/2005/Atom">\n'
        f"<id>urn:uuid:{uuid5(NAMESPACE_URL, path)}</id>\n<title>{_text(status.organization)} status</title>\n"
        f"<updated>{to_wire(updated)}</updated>\n<author><name>{_text(status.organization)}</name></author>\n"
        f'<link rel="alternate" type="text/html" href="{path}"/>\n<link rel="self" href="{path}/feed.atom"/>\n'
        f"{entries}</feed>\n"
    )


def _entry(episode: Episode, path: str) -> str:
    state = "Ongoing" if episode.ended is None else "Resolved"
    span = f"Since {_minute(episode.began)} UTC."
    if episode.ended is not None:
        span = f"From {_minute(episode.began)} to {_minute(episode.ended)} UTC."
    return (
        f"<entry><id>urn:uuid:{episode.id}</id>"
        f"<title>{state}: {_text(episode.name)} {_text(episode.description)}</title>"
        f"<published>{to_wire(episode.began)}</published><updated>{to_wire(episode.ended or episode.began)}</updated>"
        f'<link rel="alternate" type="text/html" href="{path}"/><summary>{span}</summary></entry>\n'
    )


def _minute(moment_ms: int) -> str:
    return to_wire(moment_ms)[:16].replace("T", " ")


def _text(text: str) -> str:
    """Escape a text, without characters that XML cannot contain."""
    return escape("".join(char if char.isprintable() else " " for char in text))
