"""Choose the app that visitors see, in a repository with a front end and servers in folders of their own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from moorage.runtime.builds.detection.reading import Folder

FRONT_ENDS = frozenset({"frontend", "front-end", "front", "client", "web", "webapp", "web-app", "ui", "website", "www"})
SERVERS = frozenset({"backend", "back-end", "back", "server", "api", "bff"})
# Folders that are no choice beside a front end or a server.
_OTHERS = frozenset({"worker", "workers", "webhook", "scripts", "e2e", "docs", "admin", "db", "database", "nginx"})
_MAX_FILES = 60  # that are searched for the folder of built pages
_BUILT = re.compile(
    r"['\"`/]((?:client|frontend|front-end|front|web|webapp|ui|client-app|react-app|view)s?)['\"]?\s*[,/+]\s*['\"]?/?"
    r"(?:build|dist)\b"
)


def choose(places: Sequence[str]) -> str:
    """Return the folder of the front end, else of the server; "" where other names make the choice unclear."""
    names = {place: PurePosixPath(place).name.lower() for place in places}
    if not set(names.values()) <= FRONT_ENDS | SERVERS | _OTHERS:
        return ""
    for words in (FRONT_ENDS, SERVERS):
        found = [place for place, name in names.items() if name in words]
        if found:
            return found[0] if len(found) == 1 else ""
    return ""


def build(folder: Folder) -> str:
    """Return the commands that build the pages which a server beside them serves, such as `client/build`; or ""."""
    texts = (folder.find_text(name) or "" for name in _sources(folder))
    names = dict.fromkeys(match[1] for text in texts for match in _BUILT.finditer(text))
    for name in names:
        package = Folder(folder.root, f"{folder.base}/{name}".lstrip("/"))
        if package.has("package.json") and package.scripts.get("build", "").strip() and folder.has_folder(name):
            is_old = re.match(r"\D*[1-4]\b", package.node_packages.get("react-scripts", "")) is not None
            options = "NODE_OPTIONS=--openssl-legacy-provider " if is_old else ""  # for the MD4 of webpack 4
            return f"npm install --prefix {name} --no-audit --no-fund && {options}npm run build --prefix {name}"
    return ""


def _sources(folder: Folder) -> list[str]:
    places = ("", *(each for each in ("server", "backend", "src", "api", "app") if folder.has_folder(each)))
    names = [name for place in places for name in folder.glob(f"{place}/*".lstrip("/"))]
    return [name for name in names if re.search(r"\.[cm]?[jt]s$", name)][:_MAX_FILES]
