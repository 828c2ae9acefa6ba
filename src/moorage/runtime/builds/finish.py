"""Steps after a Python app's build: static files, bytecode, relocatable scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.detection.starts import django_settings
from moorage.runtime.builds.environment import Layout, Step
from moorage.runtime.builds.install import VENV
from moorage.runtime.builds.ports import Plan

NO_STATIC = "DISABLE_COLLECTSTATIC"  # the variable that other platforms use too
# Shebang that installers write: with the path of Python, or for a long path a shell line that executes it.
_SHEBANG = re.compile(rb"#!\S*/\.venv/bin/python[\w.]*\n|#!/bin/sh\n'''exec' \S+ \"\$0\" \"\$@\"\n' '''\n")
_RELOCATABLE_SHEBANG = b"""#!/bin/sh
'''exec' "$(dirname -- "$(realpath -- "$0")")"/python "$0" "$@"
' '''
"""


def steps(plan: Plan, folder: Folder, layout: Layout, env: Mapping[str, str]) -> list[Step]:
    """Return the commands after the build command; all of them are optional."""
    if plan.kind != "container" or plan.language != "python" or not plan.install:
        return []
    python = f"{VENV}/bin/python"
    collect = []
    if plan.framework == "Django" and env.get(NO_STATIC, "0") in ("", "0") and _has_static_root(folder):
        argv = [python, "manage.py", "collectstatic", "--noinput"]
        collect.append(Step("python manage.py collectstatic --noinput", argv, is_optional=True))
    # Artifacts keep no modification times, by which Python validates its bytecode, so it would compile everything at
    # each start. Unchecked hashes avoid that; `-f` replaces the bytecode that earlier steps have written.
    argv = [python, "-m", "compileall", "-qq", "-f", "-j", "2", "--invalidation-mode", "unchecked-hash", layout.base]
    return [*collect, Step("python -m compileall", argv, is_optional=True, is_quiet=True)]


def make_movable(folder: Path) -> None:
    """Make the scripts of a virtual environment start the Python beside them."""
    for path in sorted((folder / VENV / "bin").glob("*")):
        content = path.read_bytes()
        if match := _SHEBANG.match(content):
            path.write_bytes(_RELOCATABLE_SHEBANG + content[match.end() :])


def _has_static_root(folder: Folder) -> bool:
    return any(re.search(r"^\s*STATIC_ROOT\s*[:=]", text, re.MULTILINE) for text in _settings_texts(folder))


def _settings_texts(folder: Folder) -> Iterator[str]:
    """Yield the text of a Django app's settings, which are a module or a package."""
    path = django_settings(folder).replace(".", "/")
    if not path:
        return
    yield folder.find_text(f"{path}.py") or ""
    for package in (path, path.rpartition("/")[0]):
        if package and folder.has_folder(package):
            names = sorted(file.name for file in (folder.path / package).glob("*.py"))
            yield from (folder.find_text(f"{package}/{name}") or "" for name in names)
