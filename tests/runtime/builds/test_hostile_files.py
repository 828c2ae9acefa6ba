"""Files of hostile repositories: a plan or a message for the user, and no error of the platform."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from moorage.runtime.builds.detection.preview import preview

MANY = "9" * 5_000  # digits: `int` refuses so many
BLANKS = " " * 100_000
FLASK = {"requirements.txt": "flask\n"}
PYTHON = {"app.py": "from flask import Flask\napp = Flask(__name__)\n"}

NUMBERS: dict[str, Mapping[str, str]] = {
    "a project file": {**PYTHON, "pyproject.toml": f"[project]\nname = 'a'\nx = {MANY}\ndependencies = ['flask']\n"},
    "a Pipfile": {**PYTHON, "Pipfile": f"x = {MANY}\n[packages]\nflask = '*'\n"},
    "a lock": {**PYTHON, "pyproject.toml": "[tool.poetry.dependencies]\nflask = '*'\n", "poetry.lock": f"x = {MANY}"},
    "a caret": {**PYTHON, "pyproject.toml": "[tool.poetry.dependencies]\nflask = '^1..2'\npython = '^3..1'\n"},
    "a long caret": {**PYTHON, "pyproject.toml": f"[tool.poetry.dependencies]\nflask = '^{MANY}'\n"},
    "a pin": {**PYTHON, "requirements.txt": f"flask\npsycopg2=={MANY}\nnumpy=={MANY}.1\n"},
    "a version of Python": {**PYTHON, **FLASK, ".python-version": f"{MANY}.{MANY}\n"},
    "required Python": {**PYTHON, "pyproject.toml": f"[project]\nname='a'\nrequires-python='>=3.{MANY},<²'\n"},
    "go.mod": {"go.mod": f"module a\ngo {MANY}.1\n", "main.go": "package main\nfunc main() {}\n"},
}  # fmt: skip
LONG: dict[str, Mapping[str, str]] = {
    "a requirement": {**PYTHON, "requirements.txt": f"flask{BLANKS}\x01\nnumpy{BLANKS}\x01\n"},
    "a long name": {**FLASK, "app.py": f"from {'a' * 200_000}!\n"},
    "required Python": {**PYTHON, "pyproject.toml": f"[project]\nname='a'\nrequires-python='{BLANKS}!'\n"},
    "a directive": {"Dockerfile": f"# syntax={'x' + BLANKS}x\nFROM scratch\n"},
    "an import": {**FLASK, "app.py": f"from a import {BLANKS}!\n"},
    "an environment": {**PYTHON, "environment.yml": f"dependencies:\n  - {BLANKS}\"\n  - a{BLANKS}\"\n  - flask\n"},
}  # fmt: skip


@pytest.mark.boundary("tenant-to-tenant", "No file of a repository stops the process that detects its plan.")
@pytest.mark.parametrize("cases", [NUMBERS, LONG], ids=["numbers", "long lines"])
def test_a_plan_or_a_message_is_found(
    tmp_path: Path, subtests: pytest.Subtests, cases: Mapping[str, Mapping[str, str]]
) -> None:
    for number, (name, files) in enumerate(cases.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        for path, text in files.items():
            (folder / path).write_text(text)

        with subtests.test(name):
            plan = preview(str(folder), "auto", "", "")

            assert plan["problem"] or plan["kind"]
