"""What is done to an app once it is built, so that it starts quickly and where it will be."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.detection.starts import django_settings
from moorage.runtime.builds.install import VENV
from moorage.runtime.builds.ports import Plan
from moorage.runtime.builds.workshop import Layout, Step

NO_STATIC = "DISABLE_COLLECTSTATIC"  # the variable by which other platforms are told not to
# How installers write which Python runs a program: usually in its first line, a long path in the second.
_FIRST_LINE = re.compile(rb"#!\S*/\.venv/bin/python[\w.]*\n|#!/bin/sh\n'''exec' \S+ \"\$0\" \"\$@\"\n' '''\n")
_MOVABLE = b"""#!/bin/sh
'''exec' "$(dirname -- "$(realpath -- "$0")")"/python "$0" "$@"
' '''
"""


def steps(plan: Plan, folder: Folder, layout: Layout, env: Mapping[str, str]) -> list[Step]:
    """Return what is run after the build command; nothing of it ends a build by failing."""
    if plan.kind != "container" or plan.language != "python" or not plan.install:
        return []
    python = f"{VENV}/bin/python"
    found = []
    if plan.framework == "Django" and env.get(NO_STATIC, "0") in ("", "0") and _has_static_root(folder):
        argv = [python, "manage.py", "collectstatic", "--noinput"]
        found.append(Step("python manage.py collectstatic --noinput", argv, is_optional=True))
    # Python would compile everything again at each start: times of files, by which it tells what is compiled already,
    # are not kept. So it is told not to look; what the steps before have compiled would look, and is replaced.
    argv = [python, "-m", "compileall", "-qq", "-f", "-j", "2", "--invalidation-mode", "unchecked-hash", layout.base]
    return [*found, Step("python -m compileall", argv, is_optional=True, is_quiet=True)]


def make_movable(folder: Path) -> None:
    """Let the programs of a virtual environment find their Python beside them, wherever they are."""
    for path in sorted((folder / VENV / "bin").glob("*")):
        content = path.read_bytes()
        if match := _FIRST_LINE.match(content):
            path.write_bytes(_MOVABLE + content[match.end() :])


def _has_static_root(folder: Folder) -> bool:
    return any(re.search(r"^\s*STATIC_ROOT\s*[:=]", text, re.MULTILINE) for text in _settings_texts(folder))


def _settings_texts(folder: Folder) -> Iterator[str]:
    """Yield the text of a Django app's settings, which are a module or a package of some."""
    place = django_settings(folder).replace(".", "/")
    if not place:
        return
    yield folder.find_text(f"{place}.py") or ""
    for package in (place, place.rpartition("/")[0]):
        if package and folder.has_folder(package):
            names = sorted(path.name for path in (folder.path / package).glob("*.py"))
            yield from (folder.find_text(f"{package}/{name}") or "" for name in names)
