"""Requirements of Poetry projects, and locked versions of Poetry and PDM.

Neither tool is run: a resolver that starts from the main dependencies and is constrained to the locked versions, with
their hashes, installs what the lock says, in any version of its format.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

from moorage.runtime.builds.detection.python_packages import pipfiles
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.ports import BuildFailed

_PART = re.compile(r"(\^|~(?!=))\s*v?([0-9]{1,9}(?:\.[0-9]{1,9})*)[^,\s]*")
_CLAUSE = re.compile(r"(>=|<=|==|!=|<|>)?(\d+(?:\.\d+)?)[.\d*]*")


def requirements(folder: Folder) -> str:
    """Return the main dependencies of a pyproject.toml as a requirements file."""
    tool = folder.project.get("tool")
    poetry = tool.get("poetry") if isinstance(tool, dict) else None
    listed = poetry.get("dependencies") if isinstance(poetry, dict) else None
    table: dict[str, Any] = listed if isinstance(listed, dict) else {}
    lines = []
    for name, entries in table.items():
        for entry in entries if isinstance(entries, list) else [entries]:
            details = entry if isinstance(entry, dict) else {"version": str(entry)}
            if name != "python" and not details.get("optional"):
                lines.append(pipfiles.line(name, _as_pipfile(details)))
    return "".join(f"{line}\n" for line in lines)


def constraints(folder: Folder, lock: str) -> str:
    """Return the versions and hashes of a lock, but for names with several versions."""
    try:
        locked = tomllib.loads(folder.find_text(lock) or "")
    except (ValueError, RecursionError):
        raise BuildFailed(f"{lock} is not valid TOML: lock the dependencies again") from None
    packages = [each for each in locked.get("package", []) if isinstance(each, dict) and not _is_elsewhere(each)]
    metadata = locked.get("metadata")
    old_files = metadata.get("files") if isinstance(metadata, dict) else None
    pins: dict[str, set[str]] = {}
    for package in packages:
        name, version = str(package.get("name")), str(package.get("version"))
        files = package.get("files") or _old(old_files, name, version)
        digests = sorted({str(file["hash"]) for file in files if isinstance(file, dict) and "hash" in file})
        line = f"{name}=={version}" + "".join(f" --hash={digest}" for digest in digests)
        pins.setdefault(name, set()).add(line)
    return "".join(f"{line}\n" for lines in pins.values() if len(lines) == 1 for line in lines if "\n" not in line)


def _is_elsewhere(package: dict[str, Any]) -> bool:
    """Return whether a package comes from a repository, a folder or a URL."""
    source = package.get("source")
    is_other = isinstance(source, dict) and source.get("type") != "legacy"
    return is_other or any(key in package for key in ("git", "path", "url"))


def _old(files: object, name: str, version: str) -> list[Any]:
    """Return the files of a package in an older lock, which has them in one table."""
    table: dict[str, Any] = files if isinstance(files, dict) else {}
    return list(table.get(name) or table.get(f"{name} {version}") or [])


def _as_pipfile(table: dict[str, Any]) -> dict[str, Any]:
    entry = {key: value for key, value in table.items() if key in ("extras", "markers", "git", "path", "subdirectory")}
    entry |= {"editable": True} if table.get("develop") else {}
    entry |= {"file": table["url"]} if "url" in table else {}
    if reference := next((table[key] for key in ("rev", "tag", "branch") if key in table), None):
        entry["ref"] = reference
    if isinstance(platform := table.get("platform"), str):
        entry["sys_platform"] = f"== '{platform}'"
    if isinstance(python := table.get("python"), str) and (clauses := _CLAUSE.findall(as_pip(python))):
        marker = " and ".join(f"python_version {operator or '=='} '{version}'" for operator, version in clauses)
        entry["markers"] = f"({entry['markers']}) and {marker}" if "markers" in entry else marker
    return entry | {"version": as_pip(str(table.get("version", "*")))}


def as_pip(version: str) -> str:
    """Return a constraint of Poetry as pip writes it; alternatives (`||`) become no constraint."""
    if "|" in version:
        return "*"
    version = ",".join(version.replace(",", " ").split()) if re.search(r"\d\s+[<>^~=]", version) else version
    return _PART.sub(lambda match: _range(match[1], match[2]), version.replace(" ", ""))


def _range(operator: str, version: str) -> str:
    """Return the range of `^1.2` or `~1.2`: up to the next change of its first part that is not 0, or of the second."""
    parts = [int(part) for part in version.split(".")[:3]]
    if operator == "~":
        index = min(1, len(parts) - 1)
    else:
        index = next((number for number, part in enumerate(parts) if part), len(parts) - 1)
    upper = [*parts[:index], parts[index] + 1]
    return f">={version},<{'.'.join(map(str, upper))}"
