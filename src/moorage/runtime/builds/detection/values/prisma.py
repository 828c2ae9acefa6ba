"""Schema of Prisma, in the place that the settings of the repository name or in a usual one."""

from __future__ import annotations

import posixpath
import re

from moorage.runtime.builds.detection.reading import Folder

DEFAULT = "prisma/schema.prisma"
PLACES = (DEFAULT, "schema.prisma", "src/prisma/schema.prisma", "src/schema.prisma", "db/schema.prisma")
CONFIGS = ("prisma.config.ts", "prisma.config.mts", "prisma.config.js", "prisma.config.mjs")
_SCHEMA = re.compile(r"\bschema\s*:\s*(?:path\.join\(\s*)?['\"`]([\w./-]+)['\"`](?:\s*,\s*['\"`]([\w./-]+)['\"`])?")


def find(folder: Folder) -> str | None:
    """Return the path of the schema, a file or a folder of files, or None."""
    if not {"prisma", "@prisma/client"} & folder.node_packages.keys():
        return None
    for place in (*filter(None, (_of_package(folder), _of_config(folder))), *PLACES):
        if folder.has(place) or folder.glob(f"{place}/*.prisma"):
            return place
    return "prisma/schema" if folder.glob("prisma/schema/*.prisma") else None


def text(folder: Folder) -> str:
    """Return the schema; "" without one."""
    place = find(folder)
    names = [] if place is None else [place] if folder.has(place) else folder.glob(f"{place}/*.prisma")
    return "\n".join(folder.find_text(name) or "" for name in names)


def migrate(folder: Folder) -> str:
    """Return the command that creates the tables; "" without a schema."""
    place = find(folder)
    if place is None or "prisma" not in folder.node_packages:
        return ""
    parent = place if folder.has_folder(place) else posixpath.dirname(place)
    is_known = place == DEFAULT or place in (_of_package(folder), _of_config(folder))
    option = "" if is_known else f" --schema {place}"
    if folder.has_folder(f"{parent}/migrations".lstrip("/")):
        return f"prisma migrate deploy{option}"
    return f"prisma db push --skip-generate{option}"


def _of_package(folder: Folder) -> str:
    settings = (folder.package or {}).get("prisma")
    place = settings.get("schema") if isinstance(settings, dict) else None
    return _inside(place) if isinstance(place, str) else ""


def _of_config(folder: Folder) -> str:
    matches = (_SCHEMA.search(folder.find_text(name) or "") for name in CONFIGS)
    return next((_inside("/".join(filter(None, match.groups()))) for match in matches if match), "")


def _inside(place: str) -> str:
    """Return a path of plain names, "" for another one: it becomes a part of a command."""
    path = posixpath.normpath(place).strip("/")
    return path if re.fullmatch(r"[\w][\w./-]*", path) and ".." not in path else ""
