"""How a built app is started: its command, its environment, and what of this machine it needs to see.

Whatever runs the app gives it its files at the path where it was built, and `PORT` and `HOST`; all else is said here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from moorage.runtime.builds import tools
from moorage.runtime.builds.detection import managers, scripts
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.ports import BuildFailed, Plan
from moorage.runtime.builds.workshop import TMP, path_of
from moorage.runtime.sandbox.runs.job import WORK
from moorage.runtime.workers import toolchain
from moorage.settings import Settings

ENGINES = "engines"  # the folder, of the platform's data, of what all apps share
GIVEN = ("PORT", "HOST")  # by whatever runs the app, whatever its user says
_REGISTRY = ("npm_config_registry", "NPM_CONFIG_REGISTRY")
_SYSTEM = ("/", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/dev", "/proc", "/tmp", "/opt", WORK)  # noqa: S108


@dataclass(frozen=True, slots=True)
class Launch:
    argv: list[str]
    env: dict[str, str]  # complete but for PORT and HOST
    binds: dict[str, str]  # read-only: path inside -> path outside


def launch(
    settings: Settings,
    plan: Plan,
    base: str,
    env: Mapping[str, str],
    *,
    is_sandboxed: bool,
    release: Path,
    memory_mb: int,
) -> Launch:
    """Return how a release is started; raises BuildFailed where this machine has not (any more) what it needs.

    In a sandbox the release is at `base` below the work folder, as while it was built; without one it is where it is.
    """
    folder = Folder(release, "")
    place = str(Path(WORK, base)) if is_sandboxed else str(release)
    version, home = _venv(folder)
    found = _tools(version, is_sandboxed)
    programs = found.ensure(settings.folder(ENGINES))
    seen = tools.BIN if is_sandboxed else str(programs)
    authorities = toolchain.authorities(settings.extra_ca)
    trusted = toolchain.AUTHORITIES if is_sandboxed else authorities
    script = scripts.resolve(plan.start, folder, place)
    usual = _usual(folder, place, found, memory_mb) | (toolchain.trusting(trusted) if authorities and trusted else {})
    own = {name: value for name, value in env.items() if name not in GIVEN}
    binds = found.binds(programs) | _moved(found, home) | ({toolchain.AUTHORITIES: authorities} if authorities else {})
    return Launch(
        argv=["/bin/sh", "-c", script.command],
        env={**usual, **script.env, **own, "PATH": path_of(place, seen, found.node, own.get("PATH"))},
        binds=binds if is_sandboxed else {},
    )


def _usual(folder: Folder, place: str, found: tools.Tools, memory_mb: int) -> dict[str, str]:
    """Return what an app is told unless its user says otherwise."""
    is_node = folder.has("package.json")
    return {
        "HOME": TMP,
        "TMPDIR": TMP,
        "LANG": "C.UTF-8",
        "NODE_ENV": "production",
        # Node would go by the machine's memory, and be killed before it cleans up after itself.
        "NODE_OPTIONS": f"--max-old-space-size={max(memory_mb * 3 // 4, 32)}",
        "NEXT_TELEMETRY_DISABLED": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "npm_config_update_notifier": "false",
        **{name: os.environ[name] for name in _REGISTRY if name in os.environ},
        **(tools.choice(_manager(folder)) if is_node else {}),
        **({"NODE": found.node, "npm_node_execpath": found.node} if is_node else {}),
        **({"VIRTUAL_ENV": f"{place}/.venv"} if folder.has_folder(".venv") else {}),
    }


def _manager(folder: Folder) -> managers.NodeManager | None:
    try:
        return managers.node_manager(folder)
    except BuildFailed:  # The build may have left a package.json that is none.
        return None


def _tools(version: str, is_sandboxed: bool) -> tools.Tools:
    if not version:
        return tools.find_tools(is_sandboxed=is_sandboxed)
    try:
        return tools.find_tools(is_sandboxed=is_sandboxed, python=f"python:{version}")
    except BuildFailed:
        raise BuildFailed(
            f"this release was built with Python {version}, which is not installed here any more: deploy it again"
        ) from None


def _venv(folder: Folder) -> tuple[str, str]:
    """Return the version of a virtual environment's Python, such as "3.11", and the folder of its program."""
    text = folder.find_text(".venv/pyvenv.cfg") or ""
    version = re.search(r"^version(?:_info)?\s*=\s*(3\.\d{1,2})\b", text, re.MULTILINE)
    home = re.search(r"^home\s*=\s*(/\S{1,250})\s*$", text, re.MULTILINE)
    return (version[1] if version else ""), (home[1] if home else "")


def _moved(found: tools.Tools, home: str) -> dict[str, str]:
    """Put a Python also where a virtual environment looks for it: a newer patch of it may have another folder."""
    now, path = found.python_runtime.executable.parent, PurePosixPath(home)
    is_plain = path.name == "bin" and ".." not in path.parts and len(path.parts) > 2
    if not is_plain or path == PurePosixPath(now) or _is_of_system(path.parent):
        return {}
    return {str(path.parent): str(now.parent)}


def _is_of_system(path: PurePosixPath) -> bool:
    """Tell whether a sandbox has something there, or keeps the place for something else."""
    return str(path) in _SYSTEM or str(path).startswith(("/usr/", "/proc/", "/dev/", f"{WORK}/"))
