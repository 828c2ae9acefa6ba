"""Version of Python that a project asks for, and the installed version that fits best."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from typing import Any

from moorage.core.kit.records import dataclass
from moorage.runtime.builds.detection.python_packages import conda, pipfiles
from moorage.runtime.builds.detection.reading import Folder

_NUMBER = "[0-9]{1,9}"
_CLAUSE = re.compile(
    rf"(===|==|~=|!=|<=|>=|<|>|\^|~|=)? ?v?({_NUMBER})(?:\.({_NUMBER}|\*))?(?:\.({_NUMBER}|\*))?[\w.+*-]*"
)
_PIN = re.compile(r"(?:c?python-?)?(3\.\d{1,2})(?:\.[\w*.]+)?")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Version of Python in the files of a project."""

    pin: str = ""  # such as "3.12"
    exact: str = ""  # as it is written, such as "3.12.4"
    pin_file: str = ""
    ranges: tuple[tuple[str, str], ...] = ()  # specifier and its file

    def allows(self, version: str) -> bool:
        """Return whether every range allows a version such as "3.12"."""
        return all(is_allowed(spec, version) for spec, _ in self.ranges)

    def describe(self) -> str:
        """Return the requirement and the file that states it, for a message."""
        pins = [f"{self.pin} ({self.pin_file})"] if self.pin else []
        return " and ".join([*pins, *(f"{spec} ({file})" for spec, file in self.ranges)])


def find_wanted(folder: Folder) -> Wanted:
    """Return the requirement of a project; the first file with a version is the pin."""
    pin = exact = pin_file = ""
    ranges = [(spec, file) for spec, file in _ranges(folder) if _clauses(spec)]
    for text, file in _pins(folder):
        match = _PIN.fullmatch(text.strip())
        if match and not pin:
            pin, exact, pin_file = match[1], text.strip(), file
        elif not match and text.strip()[:1] in ("<", ">", "=", "~", "!"):
            ranges.append((text.strip(), file))
    return Wanted(pin, exact, pin_file, tuple(ranges))


def choose(wanted: Wanted, versions: Iterable[str]) -> str | None:
    """Return the version to use: the pin, else the first that is allowed; None if there is none."""
    known = list(versions)
    if wanted.pin:
        return wanted.pin if wanted.pin in known else None
    return next((version for version in known if wanted.allows(version)), None)


def is_allowed(specifier: str, version: str) -> bool:
    """Return whether a specifier allows a minor version; patch versions do not count.

    Understands PEP 440 and Poetry's `^`, `~` and `||`.
    """
    minor = int(version.partition(".")[2])
    return any(all(_holds(*clause, minor) for clause in _clauses(part)) for part in re.split(r"\|\|?", specifier))


def _clauses(text: str) -> list[tuple[str, int, str, str]]:
    return [(op, int(major), minor, patch) for op, major, minor, patch in _CLAUSE.findall(" ".join(text.split()))]


def _holds(op: str, major: int, minor_text: str, patch: str, minor: int) -> bool:
    has_minor = minor_text.isdigit()
    version, bound = (3, minor), (major, int(minor_text) if has_minor else 0)
    if op in (">=", ">"):
        return version >= bound
    if op == "<":
        return version < bound or (version == bound and patch.isdigit() and int(patch) > 0)
    if op == "<=":
        return version <= bound if has_minor else major >= 3
    if op == "!=":
        return version != bound or patch.isdigit()
    if op == "^" or (op == "~=" and not patch):
        return version >= bound and major == 3
    return version == bound if has_minor else major == 3


def _pins(folder: Folder) -> list[tuple[str, str]]:
    """Return texts that name one version, with their files, in the order in which they count."""
    lines = (folder.find_text(".python-version") or "").splitlines()
    pins = [(line, ".python-version") for line in lines if line.strip() and not line.lstrip().startswith("#")][:1]
    if match := re.match(r"\s*python-(\S+)\s*$", folder.find_text("runtime.txt") or ""):
        pins.append((match[1], "runtime.txt"))
    requires = _table(pipfiles.read(folder), "requires")
    pins += [(str(requires[key]), "Pipfile") for key in ("python_full_version", "python_version") if key in requires]
    if match := re.search(r"^python[ \t]+(\S+)", folder.find_text(".tool-versions") or "", re.MULTILINE):
        pins.append((match[1], ".tool-versions"))
    for name in ("mise.toml", ".mise.toml"):
        tools = _table(_toml(folder.find_text(name) or ""), "tools")
        pins += [(str(tools["python"]), name)] if "python" in tools else []
    version, name = conda.python_version(folder)
    exact = re.fullmatch(r"={1,2}(3\.\d{1,9})[\w.*]*(?:=.*)?", version)
    return [*pins, *([(exact[1] if exact else version, name)] if version else [])]


def _ranges(folder: Folder) -> list[tuple[str, str]]:
    project = _table(folder.project, "project")
    poetry = _table(_table(_table(folder.project, "tool"), "poetry"), "dependencies")
    ranges = [(project.get("requires-python"), "pyproject.toml"), (poetry.get("python"), "pyproject.toml")]
    for name, pattern in (
        ("uv.lock", r'^requires-python = "([^"]+)"'),
        ("setup.cfg", r"^python_requires\s*=\s*(.+)$"),
        ("setup.py", r"python_requires\s*=\s*[\"']([^\"']+)[\"']"),
    ):
        match = re.search(pattern, folder.find_text(name) or "", re.MULTILINE)
        ranges.append((match[1] if match else None, name))
    return list(dict.fromkeys((spec, name) for spec, name in ranges if isinstance(spec, str)))


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        return {}


def _table(value: dict[str, Any], name: str) -> dict[str, Any]:
    table = value.get(name)
    return table if isinstance(table, dict) else {}
