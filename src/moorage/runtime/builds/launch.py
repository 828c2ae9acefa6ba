"""Start command, environment and mounts of a built app.

The engine mounts the release at the path where it was built, and sets `PORT` and `HOST`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from moorage.core.kit.records import dataclass
from moorage.runtime.builds import environment
from moorage.runtime.builds.detection import managers, python_apps, reading, scripts
from moorage.runtime.builds.node import versions
from moorage.runtime.builds.ports import CREATED_DATABASE, BuildFailed, Plan
from moorage.runtime.builds.toolchain import toolchain_downloads, tools
from moorage.runtime.sandbox.runs.job import WORK
from moorage.runtime.workers import toolchain
from moorage.runtime.workers.runtimes import Runtime
from moorage.settings import Settings

ENGINES = "engines"  # folder in the data folder with files that all apps share
DJANGO = "/opt/moorage/django"  # where sandboxes see the settings that Django apps start with
DJANGO_MODULE = "moorage_settings"
_DJANGO_FOLDER = Path(__file__).with_name("django")
ENGINE_VARIABLES = ("PORT", "HOST")  # set by the engine: in a sandbox, PORT may be the user's value
_REGISTRY = ("npm_config_registry", "NPM_CONFIG_REGISTRY")
_SYSTEM = ("/", "/tmp", "/opt", WORK)  # noqa: S108
_SYSTEM_TOPS = frozenset(("usr", "bin", "sbin", "lib", "lib32", "libx32", "lib64", "etc", "dev", "proc", "sys", "run"))


async def fetch_runtimes(settings: Settings, plan: Plan, *, is_sandboxed: bool) -> None:
    """Fetch the version of Node.js that a release was built with; another machine may have built it."""
    try:
        await versions.ensure(settings, plan.node, is_sandboxed=is_sandboxed)
    except versions.CannotFetch as error:
        raise BuildFailed(f"this release needs Node.js {plan.node}, which cannot be fetched: {error}") from None


@dataclass(frozen=True, slots=True)
class Launch:
    argv: list[str]
    env: dict[str, str]  # without PORT and HOST
    binds: dict[str, str]  # read-only mounts: path inside -> path outside


def launch(
    settings: Settings,
    plan: Plan,
    env: Mapping[str, str],
    *,
    is_sandboxed: bool,
    release: Path,
    memory_mb: int,
) -> Launch:
    """Return how to start a release; raises BuildFailed where a runtime is missing.

    A sandbox has the release at `plan.base` below the work folder, as during the build.
    """
    folder = reading.Folder(release, plan.workdir)
    root_path = Path(WORK, plan.base) if is_sandboxed else release
    app_path = str(root_path / plan.workdir)
    version, home = _venv(folder)
    installed = _tools(settings, version, versions.find(settings, plan.node), is_sandboxed)
    programs = installed.ensure(settings.folder(ENGINES))
    programs_path = tools.BIN if is_sandboxed else str(programs)
    authorities = toolchain.authorities(settings.extra_ca)
    trusted = toolchain.AUTHORITIES if is_sandboxed else authorities
    script = scripts.resolve(plan.start, folder, app_path, plan.build)
    defaults = _defaults(folder, app_path, installed, memory_mb) | _trusted_hosts(folder, settings.domain)
    defaults |= {"PYTHON_VERSION": version} if version else {}  # which official images set, and apps show
    defaults |= toolchain.trusting(trusted) if authorities and trusted else {}
    own = {name: value for name, value in env.items() if name not in ENGINE_VARIABLES}
    binds = installed.binds(programs) | _python_bind(installed, home)
    binds |= {toolchain.AUTHORITIES: authorities} if authorities else {}
    if plan.framework == "Django":
        defaults |= (django := _django(folder, own, DJANGO if is_sandboxed else str(_DJANGO_FOLDER)))
        binds |= {DJANGO: str(_DJANGO_FOLDER)} if django else {}
        own = {name: value for name, value in own.items() if not django or name != "PYTHONPATH"}
    path = environment.path_of((app_path, str(root_path)), programs_path, installed.node, own.get("PATH"))
    is_file = plan.uses_sqlite and env.get("DATABASE_URL", "sqlite").startswith("sqlite")
    migrate = f"{plan.migrate}; " if plan.migrate and (is_file or env.get(CREATED_DATABASE)) else ""
    return Launch(
        argv=["/bin/sh", "-c", f"{migrate}{script.command}"],
        env={**defaults, **script.env, **own, "PATH": path},
        binds=binds if is_sandboxed else {},
    )


def _defaults(folder: reading.Folder, app_path: str, installed: tools.Tools, memory_mb: int) -> dict[str, str]:
    """Return the environment variables that a user may override."""
    is_node = folder.has("package.json")
    return {
        "HOME": environment.TMP,
        "TMPDIR": environment.TMP,
        "LANG": "C.UTF-8",
        "NODE_ENV": "production",
        # By default Node sizes its heap by the machine's memory, and would be killed before it collects garbage.
        "NODE_OPTIONS": f"--max-old-space-size={max(memory_mb * 3 // 4, 32)}",
        "NEXT_TELEMETRY_DISABLED": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "npm_config_update_notifier": "false",
        **{name: os.environ[name] for name in _REGISTRY if name in os.environ},
        **(tools.choice(_manager(folder)) if is_node else {}),
        **({"NODE": installed.node, "npm_node_execpath": installed.node} if is_node else {}),
        **({"VIRTUAL_ENV": f"{app_path}/.venv"} if folder.has_folder(".venv") else {}),
    }


def _trusted_hosts(folder: reading.Folder, domain: str) -> dict[str, str]:
    """Return the variables with which libraries accept the host of a request; the gateway passes only the app's own.

    Versions of Angular before 22 do not know `*`; there, `allowedHosts` of angular.json names the app's own domains.
    """
    try:
        packages = folder.node_packages
    except BuildFailed:  # The build may have left an invalid package.json.
        return {}
    variables = {"AUTH_TRUST_HOST": "true"} if any(name == "next-auth" or "@auth/" in name for name in packages) else {}
    if "@angular/ssr" in packages:
        headers = "x-forwarded-for,x-forwarded-host,x-forwarded-proto"
        variables |= {"NG_ALLOWED_HOSTS": f"*,*.{domain}", "NG_TRUST_PROXY_HEADERS": headers}
    return variables


def _django(folder: reading.Folder, own: Mapping[str, str], place: str) -> dict[str, str]:
    """Return the variables that extend the settings of a Django app; {} where the user chose the settings."""
    try:
        settings = python_apps.django_extended_settings(folder)
    except BuildFailed:  # The build may have left an invalid manifest.
        settings = ""
    if not settings or "DJANGO_SETTINGS_MODULE" in own:
        return {}
    path = ":".join(filter(None, (place, own.get("PYTHONPATH"))))
    return {"DJANGO_SETTINGS_MODULE": DJANGO_MODULE, "MOORAGE_DJANGO_SETTINGS": settings, "PYTHONPATH": path}


def _manager(folder: reading.Folder) -> managers.NodeManager | None:
    try:
        return managers.node_manager(folder)
    except BuildFailed:  # The build may have left an invalid package.json.
        return None


def _tools(settings: Settings, version: str, node: Runtime | None, is_sandboxed: bool) -> tools.Tools:
    if not version:
        return tools.find_tools(is_sandboxed=is_sandboxed, node=node)
    python = toolchain_downloads.pythons(settings).get(version)
    try:
        # Another host may have built it.
        python = python or toolchain_downloads.fetch_python(settings, version, lambda _: None)
    except BuildFailed as error:
        raise BuildFailed(
            f"this release was built with Python {version}, which is not installed here any more and cannot be fetched "
            f"({error}): deploy it again"
        ) from None
    return tools.find_tools(is_sandboxed=is_sandboxed, python=python, node=node)


def _venv(folder: reading.Folder) -> tuple[str, str]:
    """Return a virtual environment's Python version, such as "3.11", and home folder."""
    text = folder.find_text(".venv/pyvenv.cfg") or ""
    version = re.search(r"^version(?:_info)?\s*=\s*(3\.\d{1,2})\b", text, re.MULTILINE)
    home = re.search(r"^home\s*=\s*(/\S{1,250})\s*$", text, re.MULTILINE)
    return (version[1] if version else ""), (home[1] if home else "")


def _python_bind(installed: tools.Tools, home: str) -> dict[str, str]:
    """Mount Python at a virtual environment's `home` too: patch versions move it."""
    current, path = installed.python_runtime.executable.parent, PurePosixPath(home)
    is_plain = path.name == "bin" and ".." not in path.parts and len(path.parts) > 2
    if not is_plain or path == PurePosixPath(current) or _is_reserved(path.parent):
        return {}
    return {str(path.parent): str(current.parent)}


def _is_reserved(path: PurePosixPath) -> bool:
    """Return whether a sandbox uses or reserves a path, or has folders of the machine there, whose links lead out."""
    return str(path) in _SYSTEM or path.parts[1] in _SYSTEM_TOPS or str(path).startswith(f"{WORK}/")
