"""The version of Python that a project asks for."""

from __future__ import annotations

import io
import json
import platform
import subprocess
import tarfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.builds.build_support import write_files

from moorage.runtime.builds.detection.python_versions import choose, find_wanted, is_allowed
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.ports import BuildFailed
from moorage.runtime.builds.python import debian
from moorage.runtime.builds.toolchain import machine_pythons, toolchain_downloads, toolchains, tools
from moorage.runtime.builds.toolchain.toolchains import Toolchains
from moorage.runtime.workers.runtimes import Runtime
from moorage.settings import Settings

SYSCONFIG = "_sysconfigdata__linux_test.py"
CONFIG = "# system configuration generated and used by the sysconfig module\nbuild_time_vars = {}\n"


@pytest.mark.parametrize(
    ("specifier", "allowed"),
    [
        (">=3.11", "11 12 13"),
        (">=3.11.4", "11 12 13"),
        (">3.11", "11 12 13"),
        (">=3.9,<3.12", "9 10 11"),
        ("<3.12.5", "9 10 11 12"),
        ("<=3.10", "9 10"),
        ("==3.11.*", "11"),
        ("==3.11.4", "11"),
        ("~=3.11", "11 12 13"),
        ("~=3.11.2", "11"),
        ("!=3.10.*,>=3.9", "9 11 12 13"),
        ("^3.10", "10 11 12 13"),
        ("~3.10", "10"),
        ("3.12", "12"),
        (">=3.9,<3.10 || >=3.12", "9 12 13"),
        ("*", "9 10 11 12 13"),
        (">=2.7,<4", "9 10 11 12 13"),
    ],
)
def test_a_range_allows_minor_versions(specifier: str, allowed: str) -> None:
    assert " ".join(str(minor) for minor in range(9, 14) if is_allowed(specifier, f"3.{minor}")) == allowed


@pytest.mark.parametrize(
    ("files", "pin", "file"),
    [
        ({".python-version": "# mine\n3.12.1\n"}, "3.12", ".python-version"),
        ({".python-version": "cpython-3.13"}, "3.13", ".python-version"),
        ({".python-version": "my-virtualenv"}, "", ""),
        ({"runtime.txt": "python-3.12.7\n"}, "3.12", "runtime.txt"),
        ({"Pipfile": "[requires]\npython_version = '3.10'"}, "3.10", "Pipfile"),
        ({".tool-versions": "nodejs 20.1.0\npython 3.12.4\n"}, "3.12", ".tool-versions"),
        ({"mise.toml": "[tools]\npython = '3.12'"}, "3.12", "mise.toml"),
        ({"environment.yml": "dependencies:\n  - python=3.12.1\n"}, "3.12", "environment.yml"),
        ({"environment.yml": "dependencies:\n  - python>=3.10\n"}, "", ""),
        ({".python-version": "3.11", "runtime.txt": "python-3.12.7"}, "3.11", ".python-version"),
    ],
)
def test_a_version_is_pinned_by_the_usual_files(tmp_path: Path, files: dict[str, Any], pin: str, file: str) -> None:
    wanted = find_wanted(Folder(write_files(tmp_path, files), ""))

    assert (wanted.pin, wanted.pin_file) == (pin, file)


@pytest.mark.parametrize(
    ("files", "chosen"),
    [
        ({}, "3.11"),
        ({"pyproject.toml": "[project]\nrequires-python='>=3.9'"}, "3.11"),
        ({"pyproject.toml": "[project]\nrequires-python='>=3.12'"}, "3.13"),
        ({"pyproject.toml": "[tool.poetry.dependencies]\npython='~3.9'"}, None),
        ({"setup.py": "setup(python_requires='>=3.12')"}, "3.13"),
        ({".python-version": "3.11.9"}, "3.11"),
        ({".python-version": "3.12"}, None),
    ],
)
def test_the_default_is_taken_if_it_is_allowed(tmp_path: Path, files: dict[str, Any], chosen: str | None) -> None:
    wanted = find_wanted(Folder(write_files(tmp_path, files), ""))

    assert choose(wanted, ["3.11", "3.10", "3.13"]) == chosen


@pytest.fixture(autouse=True)
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Folders in which pyenv and uv keep the interpreters of their user, still empty."""
    found = {"pyenv": tmp_path / "pyenv" / "versions", "uv": tmp_path / "uv"}
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "uv"))
    return found


def install(folder: Path, *, mode: int = 0o755) -> Path:
    """Put an interpreter into a folder such as `3.12.4`; return the program."""
    minor = folder.name.split(".")[1]
    program = folder / "bin" / f"python3.{minor}"
    for each in (program.parent, folder / "lib"):
        each.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    folder.chmod(mode)
    return program


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand-in for the source of interpreters: a script in an archive that uv downloads and checks."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name, text in {
            "python/bin/python3.12": "#!/bin/sh\n",
            f"python/lib/python3.12/{SYSCONFIG}": CONFIG,
        }.items():
            entry = tarfile.TarInfo(name)
            entry.mode, entry.size = 0o755, len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    path = tmp_path / "cpython.tar.gz"
    path.write_bytes(archive.getvalue())
    machine = platform.machine()
    listed = {
        "name": "cpython",
        "arch": {"family": machine, "variant": None},
        "os": "linux",
        "libc": "gnu",
        "major": 3,
        "minor": 12,
        "patch": 4,
        "prerelease": "",
        "url": path.as_uri(),
        "sha256": sha256(path.read_bytes()).hexdigest(),
        "variant": None,
        "build": None,
    }
    index = tmp_path / "downloads.json"
    index.write_text(json.dumps({f"cpython-3.12.4-linux-{machine}-gnu": listed}))
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS_JSON_URL", str(index))
    monkeypatch.setattr(debian, "RELEASES", {})  # No test of the mirror waits for the archive of Debian.
    return path


def find(settings: Settings, folder: Path, files: dict[str, Any]) -> tuple[Runtime, list[str]]:
    said: list[str] = []
    return toolchains.find_python(settings, Folder(write_files(folder, files), ""), said.append), said


def test_a_missing_version_is_fetched_once_into_a_folder_of_the_platform(
    settings: Settings, tmp_path: Path, mirror: Path
) -> None:
    python, said = find(settings, tmp_path / "app", {"runtime.txt": "python-3.12.9"})
    mirror.unlink()
    again, _ = find(settings, tmp_path / "app", {})

    assert python == again == toolchain_downloads.pythons(settings)["3.12"]
    assert python.executable.is_relative_to(settings.folder("toolchains") / "python")
    assert (python.name, python.executable.stat().st_mode & 0o777) == ("python:3.12", 0o755)
    assert "fetching Python 3.12, once for this machine" in said
    assert list(settings.folder("toolchains").glob(".new-*")) == []


def test_an_interpreter_with_another_digest_is_refused(settings: Settings, tmp_path: Path, mirror: Path) -> None:
    mirror.write_bytes(mirror.read_bytes() + b"x")

    with pytest.raises(BuildFailed, match=r"needs Python >=3\.12,<3\.13 \(pyproject\.toml\), this machine has 3\.\d+"):
        find(settings, tmp_path / "app", {"pyproject.toml": "[project]\nrequires-python='>=3.12,<3.13'"})

    assert "3.12" not in toolchain_downloads.pythons(settings)


@pytest.mark.parametrize("files", [{}, {"pyproject.toml": "[project]\nrequires-python='>=3.9'"}])
@pytest.mark.parametrize("pin", ["3.12", "3.6"])
def test_the_nearest_version_of_the_machine_is_used_where_the_pinned_one_cannot_be_had(
    settings: Settings, tmp_path: Path, mirror: Path, files: dict[str, str], pin: str
) -> None:
    mirror.unlink()

    python, said = find(settings, tmp_path / "app", {".python-version": pin, **files})

    assert python in toolchain_downloads.pythons(settings).values()
    assert f"warning: this project needs Python {pin} (.python-version), this machine has 3." in said[-1]


@pytest.mark.parametrize(
    ("requirements", "used"), [("fastapi", "3.13"), ("httptools==0.6.1", "3.11"), ("flask==3.0.0", "3.13")]
)
def test_pinned_compiled_packages_get_the_older_of_two_versions(
    settings: Settings, tmp_path: Path, mirror: Path, homes: dict[str, Path], requirements: str, used: str
) -> None:
    mirror.unlink()
    install(homes["pyenv"] / "3.11.7")
    install(homes["pyenv"] / "3.13.1")

    python, _ = find(settings, tmp_path / "app", {".python-version": "3.12", "requirements.txt": requirements})

    assert python.name == f"python:{used}"


def test_the_newest_release_that_pyenv_or_uv_has_installed_is_used(
    settings: Settings, tmp_path: Path, mirror: Path, homes: dict[str, Path]
) -> None:
    install(homes["pyenv"] / "3.12.9")
    newest = install(homes["uv"] / "cpython-3.12.11-linux-x86_64-gnu")

    python, said = find(settings, tmp_path / "app", {".python-version": "3.12"})

    assert (python.executable, said) == (newest, ["python:   3.12"])


def test_what_is_no_interpreter_for_apps_is_left(settings: Settings, tmp_path: Path, homes: dict[str, Path]) -> None:
    install(homes["pyenv"] / "3.7.17")
    install(homes["pyenv"] / "3.12.1", mode=0o700)
    install(homes["pyenv"] / "3.14.0").unlink()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("#!/bin/sh\n")
    elsewhere.chmod(0o755)
    leading_out = install(homes["pyenv"] / "3.10.1")
    leading_out.unlink()
    leading_out.symlink_to(elsewhere)
    (homes["pyenv"] / "my-env").mkdir()
    (homes["pyenv"] / "3.9.1").write_text("no folder")

    assert machine_pythons.find() == {}


def test_a_pinned_version_that_does_not_exist_is_refused(settings: Settings, tmp_path: Path, mirror: Path) -> None:
    with pytest.raises(BuildFailed, match=r"needs Python 3\.99 \(\.python-version\), this machine has 3\.\d+"):
        find(settings, tmp_path / "app", {".python-version": "3.99"})


def test_another_patch_version_is_no_reason_to_fail(settings: Settings, tmp_path: Path) -> None:
    version, installed = next(iter(toolchain_downloads.pythons(settings).items()))

    python, said = find(settings, tmp_path, {"runtime.txt": f"python-{version}.99"})

    assert python == installed
    assert said == [f"python:   {version}, the installed release of it (runtime.txt asks for {version}.99)"]


def test_a_dependency_that_needs_a_newer_python_gets_it(settings: Settings, tmp_path: Path, mirror: Path) -> None:
    known = toolchain_downloads.pythons(settings)
    oldest = Toolchains(known[min(known, key=lambda version: int(version[2:]))])
    folder = Folder(write_files(tmp_path / "app", {"requirements.txt": "django==6.0"}), "")
    said: list[str] = []

    newer = toolchains.find_newer(settings, folder, oldest, ">=3.12,<3.13", said.append)

    assert newer == Toolchains(toolchain_downloads.pythons(settings)["3.12"])
    assert said[-1] == "a dependency needs Python >=3.12,<3.13: 3.12 is used"


def test_a_dependency_does_not_change_the_python_that_the_project_pins(
    settings: Settings, tmp_path: Path, mirror: Path
) -> None:
    version, runtime = next(iter(toolchain_downloads.pythons(settings).items()))
    folder = Folder(write_files(tmp_path / "app", {".python-version": version}), "")

    assert toolchains.find_newer(settings, folder, Toolchains(runtime), ">=3.12", print) is None


@pytest.mark.deep
def test_debian_has_a_python_that_brings_its_c_library_along(tmp_path: Path) -> None:
    scratch, version = tmp_path / "scratch", next(iter(debian.RELEASES))
    scratch.mkdir()

    debian.fetch(version, tmp_path, scratch)

    python = tmp_path / debian.NAME.format(version) / "bin" / f"python{version}"
    subprocess.run([python, "-m", "venv", "--copies", "--without-pip", tmp_path / "env"], check=True)
    program = tmp_path / "program.py"
    program.write_text(
        f"#!{tmp_path}/env/bin/python\nimport ctypes, sqlite3, ssl, sys\nprint(sys.prefix, sys.version)\n"
    )
    program.chmod(0o755)
    printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    assert printed.startswith(f"{tmp_path}/env {version}.")
    assert (python.parents[1] / "include" / f"python{version}" / "Python.h").is_file()


@pytest.mark.parametrize(
    ("folder", "inside"),
    [
        ("/tmp/data/cpython-3.13", "/opt/python-3.13"),
        ("/work/data/cpython-3.13", "/opt/python-3.13"),
        ("/data/moorage/cpython-3.13", "/opt/python-3.13"),
        ("/srv/data/cpython-3.13", "/srv/data/cpython-3.13"),
    ],
)
def test_a_python_in_a_folder_that_sandboxes_cover_is_mounted_elsewhere(folder: str, inside: str) -> None:
    python = Runtime("python:3.13", "python", Path(folder, "bin/python3.13"))
    node = Runtime("nodejs:24", "nodejs", Path("/usr/bin/node"))

    sandboxed, plain = (tools.Tools(node, python, is_sandboxed=is_sandboxed) for is_sandboxed in (True, False))

    assert (sandboxed.python, plain.python) == (f"{inside}/bin/python3.13", f"{folder}/bin/python3.13")
    assert [path for path, outside in sandboxed.binds(Path("/programs")).items() if outside == folder] == [inside]
