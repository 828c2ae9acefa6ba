"""How Python projects list their dependencies, and the commands that install them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.builds.build_support import make_app_request, write_files

from moorage.runtime.builds import install
from moorage.runtime.builds.detection import detect, python_managers
from moorage.runtime.builds.detection.python_packages import poetry
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.environment import Layout, Step
from moorage.runtime.builds.ports import BuildFailed
from moorage.runtime.builds.python import install as python_install

LAYOUT = Layout(
    base="/work", cache="/cache", tmp="/tmp", bin="/bin", node="/node", python="/python3", pip="/pip", uv="/uv"
)
PROJECT = "[project]\nname='x'\ndependencies=['a>1']\n"
POETRY = "[tool.poetry]\nname='x'\n[tool.poetry.dependencies]\npython='^3.9'\na='*'\n"
OWN, PINNED = "--requirement=/bin/requirements.txt", "--constraint=/bin/constraints.txt"
LOCK = "[[package]]\nname='a'\nversion='1.5'\nfiles=[{hash='sha256:12'}]\n"
PACKAGE = "[build-system]\nrequires=[]\n"


def steps(source: Path, files: dict[str, Any], layout: Layout = LAYOUT) -> list[Step]:
    request = make_app_request(write_files(source, {"main.py": "", **files}))
    folder = detect.open_base(request)
    found = install.steps(detect.make_plan(request, folder), folder, layout)
    return [step for step in found if not step.is_quiet]


@pytest.mark.parametrize(
    ("files", "argv"),
    [
        ({"pyproject.toml": PROJECT, "uv.lock": "", "requirements.txt": "b"}, "sync --frozen"),
        ({"pyproject.toml": POETRY, "poetry.lock": LOCK}, f"pip install {OWN} {PINNED}"),
        ({"pyproject.toml": PROJECT, "pdm.lock": LOCK}, f"pip install --requirement=pyproject.toml {PINNED}"),
        ({"pylock.toml": ""}, "pip install --requirement=pylock.toml"),
        ({"requirements.txt": "-r base.txt", "base.txt": "a"}, "pip install --requirement=requirements.txt"),
        ({"requirements/prod.txt": "a", "requirements.in": "a"}, "pip install --requirement=requirements/prod.txt"),
        ({"requirements/base.txt": "a"}, "pip install --requirement=requirements/base.txt"),
        ({"requirements.in": "a"}, "pip install --requirement=requirements.in"),
        ({"Pipfile": "[packages]\na='*'"}, f"pip install {OWN}"),
        ({"environment.yml": "dependencies:\n  - python=3.11\n  - a=1"}, f"pip install {OWN}"),
        ({"pyproject.toml": PROJECT}, "pip install --requirement=pyproject.toml"),
        ({"pyproject.toml": POETRY}, f"pip install {OWN}"),
        ({"setup.py": ""}, "pip install ."),
    ],
)  # fmt: skip
def test_dependencies_come_from_the_lock_or_from_the_file_that_lists_them(
    tmp_path: Path, files: dict[str, Any], argv: str
) -> None:
    (step,) = steps(tmp_path, files)

    assert " ".join(step.argv).startswith(f"/uv {argv}")
    assert not step.is_optional


@pytest.mark.parametrize(
    ("project", "is_installed"),
    [
        (PROJECT + PACKAGE, True),
        (PROJECT, False),
        (PROJECT + PACKAGE + "[tool.uv]\npackage=false", False),
        (POETRY + PACKAGE, True),
        (POETRY.replace("name='x'", "name='x'\npackage-mode=false") + PACKAGE, False),
    ],
)
def test_the_project_itself_is_installed_if_it_is_a_package_and_may_turn_out_to_be_none(
    tmp_path: Path, project: str, is_installed: bool
) -> None:
    _, *last = steps(tmp_path, {"pyproject.toml": project})

    assert [(step.argv[-2:], step.is_optional, step.is_cached) for step in last] == (
        [(["--no-deps", "."], True, False)] if is_installed else []
    )


def test_a_server_that_the_app_does_not_list_is_installed_as_well(tmp_path: Path) -> None:
    lock = '[[package]]\nname = "fastapi"\n'
    files = {"pyproject.toml": PROJECT, "uv.lock": lock, "main.py": "app = FastAPI()"}

    assert [step.argv[1:4] for step in steps(tmp_path, files)][1:] == [["pip", "install", "uvicorn"]]


def test_an_app_without_dependencies_has_an_environment_of_its_own_too(tmp_path: Path) -> None:
    request = make_app_request(write_files(tmp_path, {"main.py": ""}))
    folder = detect.open_base(request)

    create, compile_all = install.steps(detect.make_plan(request, folder), folder, LAYOUT)

    assert create.argv[:3] == ["/python3", "-m", "venv"]
    assert "compileall" in compile_all.argv


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"requirements.txt": "a"}, ["--requirement=requirements.txt"]),
        ({"requirements.txt": "fastapi", "main.py": "app = FastAPI()"}, ["--requirement=requirements.txt", "uvicorn"]),
        ({"pyproject.toml": PACKAGE}, ["."]),
        ({"pyproject.toml": "[project]\ndependencies=['a>1', '--index-url=http://x']"}, ["a>1"]),
    ],
)
def test_pip_installs_where_uv_cannot_be_fetched(tmp_path: Path, files: dict[str, Any], words: list[str]) -> None:
    layout = Layout("/work", "/cache", "/tmp", "/bin", "/node", "/python3", "/pip")

    (step,) = steps(tmp_path, files, layout)

    assert step.argv[:4] == [".venv/bin/python", "-m", "pip", "install"]
    assert step.argv[-len(words) :] == words


def test_a_lock_that_only_uv_reads_is_not_ignored_without_it(tmp_path: Path) -> None:
    layout = Layout("/work", "/cache", "/tmp", "/bin", "/node", "/python3", "/pip")

    with pytest.raises(BuildFailed, match=r"pip install \(poetry\.lock\) needs uv"):
        steps(tmp_path, {"pyproject.toml": POETRY, "poetry.lock": LOCK}, layout)


def generated(folder: Path, files: dict[str, Any]) -> list[str]:
    return python_managers.find_manager(Folder(write_files(folder, files), "")).generated.splitlines()


def test_a_pipfile_lock_is_installed_with_its_hashes_and_markers(tmp_path: Path) -> None:
    entries = {
        "a": {"version": "==1.2", "hashes": ["sha256:12", "sha256:34"], "markers": "python_version >= '3.8'"},
        "b": {"version": "==2", "hashes": ["sha256:56"], "extras": ["c", "d"], "index": "pypi"},
    }
    sources = [{"name": "pypi", "url": "https://x.test"}, {"name": "own", "url": "https://own.test/simple"}]
    lock = {"_meta": {"sources": sources}, "default": entries, "develop": {"pytest": {"version": "==8"}}}

    assert generated(tmp_path, {"Pipfile.lock": json.dumps(lock)}) == [
        "--extra-index-url https://own.test/simple",
        "a==1.2 ; (python_version >= '3.8') --hash=sha256:12 --hash=sha256:34",
        "b[c,d]==2 --hash=sha256:56",
    ]


def test_a_pipfile_without_a_lock_is_read_itself(tmp_path: Path) -> None:
    pipfile = """
[packages]
a = "*"
b = ">=1,<2"
c = {version = "~=3.1", extras = ["x"], sys_platform = "== 'linux'"}
d = {git = "https://x.test/d.git", ref = "main"}
e = {path = "./e", editable = true}

[dev-packages]
pytest = "*"
"""

    assert generated(tmp_path, {"Pipfile": pipfile}) == [
        "a",
        "b>=1,<2",
        "c[x]~=3.1 ; sys_platform == 'linux'",
        "d @ git+https://x.test/d.git@main",
        "-e ./e",
    ]


def test_main_dependencies_of_poetry_are_installed_in_the_versions_of_its_lock(tmp_path: Path) -> None:
    project = """
[tool.poetry.dependencies]
python = "^3.9"
a = "^1.2"
b = {version = "~2.1", extras = ["x"], python = "<3.11"}
c = {version = "*", optional = true}
d = {git = "https://x.test/d.git", tag = "v1"}
e = "^0.3.1 || ^1"

[tool.poetry.group.dev.dependencies]
pytest = "*"
"""
    lock = """
[[package]]
name = "a"
version = "1.5"
files = [{file = "a.whl", hash = "sha256:12"}, {file = "a.tar.gz", hash = "sha256:34"}]

[[package]]
name = "twice"
version = "1"

[[package]]
name = "twice"
version = "2"

[[package]]
name = "d"
version = "1"
source = {type = "git", url = "https://x.test/d.git"}
"""
    folder = Folder(write_files(tmp_path, {"pyproject.toml": project, "poetry.lock": lock}), "")

    manager = python_managers.find_manager(folder)

    assert manager.generated.splitlines() == [
        "a>=1.2,<2",
        "b[x]>=2.1,<2.2 ; (python_version < '3.11')",
        "d @ git+https://x.test/d.git@v1",
        "e",
    ]
    assert manager.constraints.splitlines() == ["a==1.5 --hash=sha256:12 --hash=sha256:34"]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("^1.2.3", ">=1.2.3,<2"),
        ("^0.2.3", ">=0.2.3,<0.3"),
        ("^0.0.3", ">=0.0.3,<0.0.4"),
        ("^0", ">=0,<1"),
        ("~1.2.3", ">=1.2.3,<1.3"),
        ("~1", ">=1,<2"),
        ("~=1.2", "~=1.2"),
        (">=1.0, <2.0", ">=1.0,<2.0"),
        ("1.2.*", "1.2.*"),
    ],
)
def test_ranges_of_poetry_are_written_as_pip_does(version: str, expected: str) -> None:
    assert poetry.as_pip(version) == expected


def test_packages_of_conda_are_installed_by_pip_where_names_are_the_same(tmp_path: Path) -> None:
    environment = """
name: web
channels: [conda-forge]
dependencies:
  - python=3.11  # the interpreter
  - pip
  - numpy=1.26
  - conda-forge::fastapi>=0.110
  - pandas=2.2.1=py311_0
  - "flask==3.0"
  - pytorch
  - pip:
    - uvicorn[standard]==0.34.0
    - -r extra.txt
prefix: /opt/conda
"""

    assert generated(tmp_path, {"environment.yml": environment}) == [
        "numpy==1.26.*",
        "fastapi>=0.110",
        "pandas==2.2.1.*",
        "flask==3.0",
        "torch",
        "uvicorn[standard]==0.34.0",
        "-r extra.txt",
    ]


def test_paths_in_generated_requirements_are_those_of_the_repository(tmp_path: Path) -> None:
    packages = "[packages]\na={path='./a', editable=true}\nb={path='../b'}\nc='*'\n"
    source = Folder(write_files(tmp_path / "source", {"Pipfile": packages}), "")

    python_install.write_requirements(source, tmp_path, "/work/app")

    assert (tmp_path / "requirements.txt").read_text() == "-e /work/app/./a\n/work/app/../b\nc\n"


def test_a_package_that_only_conda_has_is_named(tmp_path: Path) -> None:
    with pytest.raises(BuildFailed, match=r"environment\.yml lists ffmpeg, which conda has and PyPI has not"):
        generated(tmp_path, {"environment.yml": "dependencies:\n- ffmpeg\n- flask\n"})


@pytest.mark.parametrize(
    ("files", "is_known"),
    [
        ({"requirements.txt": "a==1\nb[c]>=2 ; python_version > '3'\n# x\n--index-url https://x.test\n"}, True),
        ({"requirements.txt": "a==1 \\\n    --hash=sha256:12\n"}, True),
        ({"requirements.txt": "-r base.txt", "base.txt": "a"}, True),
        ({"requirements.txt": "-r base.txt", "base.txt": "./local"}, False),
        ({"requirements.txt": "-e ."}, False),
        ({"requirements.txt": "a @ file:///${PROJECT_ROOT}/a"}, False),
        ({"requirements.txt": "a @ git+https://x.test/a@main"}, False),
        ({"pyproject.toml": PROJECT, "uv.lock": 'source = { virtual = "." }'}, True),
        ({"pyproject.toml": PROJECT, "uv.lock": 'source = { editable = "libs/a" }'}, False),
        ({"pyproject.toml": POETRY, "poetry.lock": LOCK}, True),
        ({"pyproject.toml": POETRY, "poetry.lock": '[package.source]\ntype = "directory"'}, False),
        ({"pyproject.toml": POETRY}, True),
        ({"pyproject.toml": PROJECT + "dynamic=['version']"}, False),
        ({"pyproject.toml": PROJECT}, True),
        ({"Pipfile": "[packages]\na='*'"}, True),
        ({"Pipfile": "[packages]\na={path='./a'}"}, False),
        ({"environment.yml": "dependencies:\n- a\n- pip:\n  - -r more.txt\n", "more.txt": "-e ."}, False),
        ({"setup.py": ""}, False),
        ({}, True),
    ],
)
def test_a_cache_is_used_where_all_inputs_of_an_installation_are_known(
    tmp_path: Path, files: dict[str, Any], is_known: bool
) -> None:
    write_files(tmp_path, {"main.py": "", **files})

    assert (python_managers.inputs(Folder(tmp_path, "")) is not None) is is_known


def test_changed_and_included_requirements_change_the_key_of_the_cache(tmp_path: Path) -> None:
    def key(text: str, own: str = "") -> str | None:
        files = {"main.py": "", "requirements.txt": f"-r requirements/base.txt\n{own}", "requirements/base.txt": text}
        request = make_app_request(write_files(tmp_path, files))
        folder = detect.open_base(request)
        plan = detect.make_plan(request, folder)
        return install.cache_key(plan, folder, install.steps(plan, folder, LAYOUT), ["python 3.11"])

    assert key("a==1") == key("a==1") is not None
    assert key("a==1") != key("a==2")
    assert key("a==1", "# one") != key("a==1", "# two")
