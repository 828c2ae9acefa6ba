"""Requirements that were written on another machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.runtime.builds.build_support import make_request, write_files

from moorage.runtime.builds.detection import detect, python_managers
from moorage.runtime.builds.detection.reading import Folder


def lines_of(folder: Path, files: dict[str, str]) -> list[str]:
    return python_managers.find_manager(Folder(write_files(folder, files), "")).generated.splitlines()


@pytest.mark.parametrize(
    ("line", "installed"),
    [
        ("idna @ file:///home/conda/build_artifacts/idna_1620/work", ["idna"]),
        ("idna @ file:///C:/b/abs_85o/croot/idna-3.7-py3-none-any.whl", ["idna==3.7"]),
        ("idna=3.7=pyhd3eb1b0_1", ["idna==3.7"]),
        ("_libgcc_mutex=0.1=main", []),
        ("python=3.11.4=h955ad1f_0", []),
        ("pkg_resources==0.0.0", []),
        ("pywin32==306", []),
        ("python-apt==2.4.0+ubuntu3", []),
        ("torch==2.1.0+cu118", ["torch==2.1.0"]),
        ("psycopg2 --no-binary psycopg2  # compiled", ["psycopg2"]),
        ("opencv-python==4.8.1.78", ["opencv-python-headless==4.8.1.78"]),
        ("sklearn", ["scikit-learn"]),
        ("sqlite3", []),
        ("# caf\ufffd", ["# caf?"]),
    ],
)
def test_a_line_of_another_machine_is_changed(tmp_path: Path, line: str, installed: list[str]) -> None:
    assert lines_of(tmp_path, {"requirements.txt": f"flask==3.1.0\n{line}\n"}) == ["flask==3.1.0", *installed]


@pytest.mark.parametrize(
    "line",
    [
        "pywin32==306 ; sys_platform == 'win32'",
        "sklearn==0.0",
        "uvicorn[standard] >= 0.20  # server",
        "idna @ https://files.test/idna-3.7-py3-none-any.whl",
        "pywin32==306 \\\n    --hash=sha256:0123",
        "-e .",
    ],
)
def test_other_files_are_installed_as_they_are(tmp_path: Path, line: str) -> None:
    folder = Folder(write_files(tmp_path, {"requirements.txt": f"{line}\n"}), "")

    assert python_managers.find_manager(folder).files == ("requirements.txt",)
    assert python_managers.find_manager(folder).notes == ()


def test_included_files_are_part_of_the_changed_requirements(tmp_path: Path) -> None:
    files = {
        "requirements.txt": "-r requirements/production.txt\n",
        "requirements/production.txt": "-r base.txt\n-c limits.txt\npkg-resources==0.0.0\n-e ../lib\n",
        "requirements/base.txt": "flask\n",
    }

    assert lines_of(tmp_path, files) == ["flask", "-c ./requirements/limits.txt", "-e ./lib"]


def test_the_log_names_the_changed_lines(tmp_path: Path) -> None:
    files = {"requirements.txt": "flask\nsklearn\npkg-resources==0.0.0\n", "app.py": "app = Flask('x')\n"}
    request = make_request(write_files(tmp_path, files), wanted="auto")

    plan = detect.make_plan(request, detect.open_base(request))

    assert (
        "requirements.txt has lines of another machine: sklearn (scikit-learn in its place), pkg-resources==0.0.0 "
        "(left out)"
    ) in plan.notes
