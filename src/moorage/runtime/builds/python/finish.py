"""Steps after a Python app's build: static files, bytecode, relocatable scripts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from moorage.runtime.builds.detection import python_apps
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.environment import Layout, Step
from moorage.runtime.builds.ports import Plan
from moorage.runtime.builds.python import install as python_install
from moorage.runtime.builds.python.install import VENV

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
        manage = f"{python_apps.django_folder(folder) or ''}/manage.py".lstrip("/")
        argv = [python, manage, "collectstatic", "--noinput"]
        collect.append(Step(f"python {manage} collectstatic --noinput", argv, is_optional=True))
    # Those of the virtual environment were compiled with the dependencies.
    return [*collect, python_install.compiling(layout.base, "-x", rf"/{re.escape(VENV)}/")]


def make_movable(folder: Path) -> None:
    """Make the scripts of a virtual environment start the Python beside them."""
    for path in sorted((folder / VENV / "bin").glob("*")):
        content = path.read_bytes()
        if match := _SHEBANG.match(content):
            path.write_bytes(_RELOCATABLE_SHEBANG + content[match.end() :])


def _has_static_root(folder: Folder) -> bool:
    texts = python_apps.django_settings_texts(folder, python_apps.django_folder(folder) or "")
    return any(re.search(r"^[ \t]*STATIC_ROOT[ \t]*[:=]", text, re.MULTILINE) for text in texts)
