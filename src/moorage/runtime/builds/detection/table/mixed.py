"""Servers in Python and Go that have a package.json for the scripts and styles of their pages."""

from __future__ import annotations

from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.detection.table import go, python
from moorage.runtime.builds.detection.table.node_starts import has_start_script

# A bundler starts at a page: a folder without one has only assets to bundle.
_PAGES = ("index.html", "src/index.html", "public/index.html", "app/index.html", "client/index.html")


def started_server(folder: Folder) -> str | None:
    """Find a `start` script of a server in a folder without a page, as frameworks with a bundler of their own have."""
    return None if folder.has(*_PAGES) else has_start_script(folder)


def other_server(folder: Folder) -> str | None:
    """Find a server of another language; None where the repository has a page for a bundler."""
    if folder.has(*_PAGES):
        return None
    if folder.has("go.mod") and go.packages(folder) == ["."]:
        return "a main package in go.mod"
    if not folder.has(*python.MANIFESTS):
        return None
    rows = (row for row in python.APPS if row.sign.find(folder) is not None and row.text(row.start, folder))
    return next((f"a server of {row.name}" for row in rows), None)
