"""Steps after the build command of an app."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.runtime.builds.build_support import write_files

from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.environment import Layout
from moorage.runtime.builds.ports import Plan
from moorage.runtime.builds.python import finish

LAYOUT = Layout("/work", "/cache", "/tmp", "/bin", "/node", "/python3", "/pip")
DJANGO = Plan("container", "python", "Django", install="pip install -r requirements.txt")
MANAGE = "os.environ.setdefault('DJANGO_SETTINGS_MODULE', 'site_a.settings')"
COLLECT = "python manage.py collectstatic --noinput"


def steps(source: Path, files: dict[str, str], **env: str) -> list[str]:
    folder = Folder(write_files(source, {"manage.py": MANAGE, **files}), "")
    return [step.what for step in finish.steps(DJANGO, folder, LAYOUT, env)]


@pytest.mark.parametrize(
    "files",
    [
        {"site_a/settings.py": "X = 1\nSTATIC_ROOT = 'x'"},
        {"site_a/settings.py": "if True:\n    STATIC_ROOT: str = 'x'"},
        {"site_a/settings/__init__.py": "", "site_a/settings/base.py": "STATIC_ROOT = 'x'"},
        {"manage.py": MANAGE.replace("settings", "settings.production"), "site_a/settings/base.py": "STATIC_ROOT='x'"},
    ],
)
def test_static_files_are_collected_where_settings_say_where_to(tmp_path: Path, files: dict[str, str]) -> None:
    assert steps(tmp_path, files) == [COLLECT, "python -m compileall"]
    assert steps(tmp_path, files, DISABLE_COLLECTSTATIC="0")[0] == COLLECT


@pytest.mark.parametrize(
    ("files", "env"),
    [
        ({"site_a/settings.py": "# STATIC_ROOT = 'x'"}, {}),
        ({}, {}),
        ({"manage.py": ""}, {}),
        ({"site_a/settings.py": "STATIC_ROOT = 'x'"}, {"DISABLE_COLLECTSTATIC": "1"}),
    ],
)
def test_static_files_are_not_collected_otherwise(tmp_path: Path, files: dict[str, str], env: dict[str, str]) -> None:
    assert steps(tmp_path, files, **env) == ["python -m compileall"]


def test_nothing_is_done_to_what_has_no_environment(tmp_path: Path) -> None:
    plans = [
        Plan("container", "nodejs", install="npm ci"),
        Plan("container", "python"),
        Plan("static", "python", "x", "x"),
    ]

    assert [finish.steps(plan, Folder(tmp_path, ""), LAYOUT, {}) for plan in plans] == [[], [], []]


@pytest.mark.parametrize(
    "first",
    [
        "#!{python}\n",
        "#!/bin/sh\n'''exec' {python} \"$0\" \"$@\"\n' '''\n",
        "#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n",
    ],
)
def test_programs_of_an_environment_find_their_python_wherever_they_are(tmp_path: Path, first: str) -> None:
    text = first.format(python="/gone/app/.venv/bin/python") + "import sys\nprint(sys.argv[1:])\n"
    write_files(tmp_path, {"my app/.venv/bin/tool": text, "my app/.venv/bin/other": "#!/bin/sh\necho kept\n"})
    programs = tmp_path / "my app" / ".venv" / "bin"
    (programs / "python").symlink_to(sys.executable)
    (programs / "tool").chmod(0o755)

    finish.make_movable(tmp_path / "my app")

    done = subprocess.run([programs / "tool", "a b", "c"], capture_output=True, text=True, check=True)
    assert done.stdout == "['a b', 'c']\n"
    assert (programs / "other").read_text() == "#!/bin/sh\necho kept\n"
