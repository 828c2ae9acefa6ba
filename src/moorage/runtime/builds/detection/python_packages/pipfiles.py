"""Requirements of Pipenv projects, from Pipfile.lock or Pipfile."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from typing import Any

from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.ports import BuildFailed

_MARKERS = ("python_version", "python_full_version", "sys_platform", "platform_system", "platform_machine", "os_name")
_DEFAULT_SOURCE = "pypi"  # Pipenv's name of the default index, for which the operator may have a mirror


def from_lock(folder: Folder) -> str:
    """Return the locked packages with their hashes as a requirements file."""
    lock = _read_lock(folder)
    packages = _entries(lock.get("default"))
    has_hashes = bool(packages) and all(entry.get("hashes") for entry in packages.values())
    meta = lock.get("_meta")
    sources = meta.get("sources") if isinstance(meta, dict) else None
    return _text(sources, [line(name, entry, has_hashes=has_hashes) for name, entry in packages.items()])


def from_pipfile(folder: Folder) -> str:
    """Return the packages of a Pipfile as a requirements file."""
    pipfile = read(folder)
    packages = _entries(pipfile.get("packages"))
    return _text(pipfile.get("source"), [line(name, entry) for name, entry in packages.items()])


def read(folder: Folder) -> dict[str, Any]:
    """Return the parsed Pipfile; empty without one."""
    try:
        return tomllib.loads(folder.find_text("Pipfile") or "")
    except (ValueError, RecursionError):
        raise BuildFailed("Pipfile is not valid TOML") from None


def _read_lock(folder: Folder) -> dict[str, Any]:
    try:
        lock = json.loads(folder.find_text("Pipfile.lock") or "{}")
    except (ValueError, RecursionError):
        raise BuildFailed("Pipfile.lock is not valid JSON: run `pipenv lock`") from None
    return lock if isinstance(lock, dict) else {}


def _entries(packages: object) -> dict[str, dict[str, Any]]:
    """Return packages by name; a plain version stands for an entry with only that."""
    if not isinstance(packages, dict):
        return {}
    return {name: entry if isinstance(entry, dict) else {"version": str(entry)} for name, entry in packages.items()}


def line(name: str, entry: Mapping[str, Any], *, has_hashes: bool = False) -> str:
    """Return an entry of a Pipfile as a line of a requirements file."""
    extras = entry.get("extras")
    full_name = f"{name}[{','.join(map(str, extras))}]" if isinstance(extras, list) and extras else name
    if place := entry.get("path") or entry.get("file"):
        return f"{'-e ' if entry.get('editable') else ''}{place}"
    if git := entry.get("git"):
        reference = f"@{entry['ref']}" if entry.get("ref") else ""
        folder = f"#subdirectory={entry['subdirectory']}" if entry.get("subdirectory") else ""
        return f"{full_name} @ git+{git}{reference}{folder}"
    version = str(entry.get("version", "")).strip()
    text = full_name + ("" if version in ("", "*") else version if version[0] in "<>=!~" else f"=={version}")
    markers = [f"({entry['markers']})"] if entry.get("markers") else []
    markers += [f"{key} {entry[key]}" for key in _MARKERS if key in entry]
    text += f" ; {' and '.join(markers)}" if markers else ""
    return text + "".join(f" --hash={digest}" for digest in entry["hashes"]) if has_hashes else text


def _text(sources: object, lines: list[str]) -> str:
    """Return a requirements file; entries that span lines are not valid in one."""
    others = [source for source in sources if isinstance(source, dict)] if isinstance(sources, list) else []
    urls = [str(source.get("url")) for source in others if source.get("name") != _DEFAULT_SOURCE]
    lines = [*(f"--extra-index-url {url}" for url in urls), *lines]
    return "".join(f"{line}\n" for line in lines if len(line.splitlines()) == 1)
