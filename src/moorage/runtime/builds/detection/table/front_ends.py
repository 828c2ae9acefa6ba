"""Choose the app that visitors see, in a repository with a front end and servers in folders of their own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from moorage.runtime.builds.detection.reading import Folder

FRONT_ENDS = frozenset({"frontend", "front-end", "front", "client", "web", "webapp", "web-app", "ui", "website", "www"})
SERVERS = frozenset({"backend", "back-end", "back", "server", "api", "bff"})
# The same as parts of a name, such as `shop-frontend` or `react_client`; the last part that is known decides.
_PART = re.compile(
    r"(?P<front>front-?end|front|client|web-?app|web|ui|website|www)|(?P<server>back-?end|back|server|api|bff)"
)
# Folders that are no choice beside a front end or a server.
_OTHERS = frozenset({"worker", "workers", "webhook", "scripts", "e2e", "docs", "admin", "db", "database", "nginx"})
_MAX_FILES = 60  # that are searched for the folder of built pages
_BUILT = re.compile(
    r"['\"`/]((?:client|frontend|front-end|front|web|webapp|ui|client-app|react-app|view)s?)['\"]?\s*[,/+]\s*['\"]?/?"
    r"(?:build|dist)\b"
)


def choose(places: Sequence[str]) -> str:
    """Return the folder of the front end, else of the server; "" where other names make the choice unclear."""
    kinds = {place: _kind(PurePosixPath(place).name.lower()) for place in places}
    if "" in kinds.values():
        return ""
    for kind in ("front", "server"):
        if found := [place for place, each in kinds.items() if each == kind]:
            return found[0] if len(found) == 1 else ""
    return ""


def _kind(name: str) -> str:
    """Return `front`, `server`, `other`, or "" for a name that says nothing."""
    if name in FRONT_ENDS | SERVERS | _OTHERS:
        return "front" if name in FRONT_ENDS else "server" if name in SERVERS else "other"
    parts = re.split(r"[-_.\s]+", re.sub(r"(front|back)[-_.\s]+end", r"\1end", name))
    kinds = [
        kind for part in parts if (match := _PART.fullmatch(part)) for kind, text in match.groupdict().items() if text
    ]
    return kinds[-1] if kinds else ""


def build(folder: Folder) -> str:
    """Return the commands that build the pages which a server beside them serves, such as `client/build`; or ""."""
    texts = (folder.find_text(name) or "" for name in _sources(folder))
    name = next(iter(built(folder, texts)), "")
    return f"npm install --prefix {name} --no-audit --no-fund && npm run build --prefix {name}" if name else ""


def built(folder: Folder, texts: Iterable[str]) -> list[str]:
    """Return the sub-folders that a `build` script fills and the code of a server names."""
    names = dict.fromkeys(match[1] for text in texts for match in _BUILT.finditer(text))
    packages = {name: Folder(folder.root, f"{folder.base}/{name}".lstrip("/")) for name in names}
    return [
        name
        for name, package in packages.items()
        if package.has("package.json") and package.scripts.get("build", "").strip() and folder.has_folder(name)
    ]


def _sources(folder: Folder) -> list[str]:
    places = ("", *(each for each in ("server", "backend", "src", "api", "app") if folder.has_folder(each)))
    names = [name for place in places for name in folder.glob(f"{place}/*".lstrip("/"))]
    return [name for name in names if re.search(r"\.[cm]?[jt]s$", name)][:_MAX_FILES]
