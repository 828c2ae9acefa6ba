"""Upper bounds of packages that fit to pinned, older ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.runtime.builds.app_support import release
from tests.runtime.builds.build_support import make_request, write_files

from moorage.runtime.builds.detection import detect
from moorage.runtime.builds.detection.python_packages import companions
from moorage.runtime.builds.detection.reading import Folder


@pytest.mark.parametrize(
    ("requirements", "bounds"),
    [
        ("Flask==1.1.2\ngunicorn", ["itsdangerous<2.1", "jinja2<3.1", "markupsafe<2.1", "werkzeug<2.1"]),
        ("Flask==1.1.2\nWerkzeug==1.0.1\njinja2==2.11.3", ["itsdangerous<2.1", "markupsafe<2.1"]),
        ("flask==2.2.5", ["werkzeug<3"]),
        ("flask<3\nFlask_Login==0.6.2", ["werkzeug<3"]),
        ("flask==2.0.1\nFlask-Login==0.5.0", ["werkzeug<2.1"]),
        ("flask==3.0.0\npandas==2.3.0\nnumpy", []),
        ("pandas==1.5.3\nscikit-learn==1.2.2", ["numpy<2"]),
        ("streamlit==1.20.0\nnumpy", ["altair<5"]),
        ("fastapi\npasslib[bcrypt]", ["bcrypt<4.1"]),
        ("flask\npandas", []),
    ],
)
def test_packages_that_are_not_listed_fit_to_those_that_are_pinned(
    tmp_path: Path, requirements: str, bounds: list[str]
) -> None:
    write_files(tmp_path, {"requirements.txt": requirements})

    assert list(companions.bounds(Folder(tmp_path, ""))) == bounds


def test_a_lock_may_get_newer_versions_of_compiled_packages_alone() -> None:
    lock = "flask==2.0.1 --hash=sha256:ab\ngreenlet==1.1.2 ; python_version < '4' --hash=sha256:cd\nnumpy==1.22.0\n"

    expected = "flask==2.0.1 --hash=sha256:ab\ngreenlet>=1.1.2,<100 ; python_version < '4'\nnumpy>=1.22.0,<2\n"
    assert companions.loosened(lock) == expected


@pytest.mark.parametrize(
    ("requirements", "code", "bounds"),
    [
        ("fastapi", 'return templates.TemplateResponse("a.html", {"request": request})', ["starlette<1"]),
        ("fastapi>=0.100", 'templates.TemplateResponse(\n    name="a.html", context=values)', ["starlette<1"]),
        ("starlette", "return templates.TemplateResponse(template, context)", ["starlette<1"]),
        ("fastapi", 'return templates.TemplateResponse(request, "a.html")', []),
        ("fastapi\nstarlette==0.40", 'templates.TemplateResponse("a.html", {})', []),
        ("flask", "@app.before_first_request\ndef start(): ...", ["flask<2.3", "werkzeug<3"]),
        (
            "flask",
            "from itsdangerous import TimedJSONWebSignatureSerializer as Serializer",
            ["flask<2.3", "itsdangerous<2.1", "werkzeug<3"],
        ),
        ("flask==2.2.5", "@app.before_first_request\ndef start(): ...", ["werkzeug<3"]),
        ("flask\nflask-login", "from flask import Flask, Markup", ["flask<3", "werkzeug<3"]),
        ("fastapi", "from pydantic import BaseModel, BaseSettings", ["pydantic<2"]),
        ("django", "from django.conf.urls import include, url", ["django<4"]),
        ("django>=2.2,<3", "from django.conf.urls import include, url", []),
        ("django", "from django.urls import path", []),
        ("numpy", "x = np.float(3)", ["numpy<1.24"]),
        ("numpy", "x = np.float64(3) + np.int_(2)", []),
    ],
)
def test_packages_fit_to_the_code_that_calls_them(
    tmp_path: Path, requirements: str, code: str, bounds: list[str]
) -> None:
    write_files(tmp_path, {"requirements.txt": requirements, "shop/views.py": code})

    assert list(companions.bounds(Folder(tmp_path, ""))) == bounds


@pytest.mark.parametrize(
    ("requirements", "raised"),
    [
        ("Django==3.2\nPillow==8.3.2\n", ["pillow>=8.3.2,<10"]),
        ("pillow==6.2.1", ["pillow>=6.2.1,<10"]),
        ("numpy==1.19.5\npandas>=1.1", ["numpy>=1.19.5,<2"]),
        ("pillow==8.3.2 --hash=sha256:00", []),
        ("pillow\nsix==1.16.0", []),
    ],
)
def test_pinned_versions_of_compiled_packages_may_be_raised(
    tmp_path: Path, requirements: str, raised: list[str]
) -> None:
    write_files(tmp_path, {"requirements.txt": requirements})

    assert list(companions.raised(Folder(tmp_path, ""))) == raised


@pytest.mark.parametrize(
    ("requirement", "is_old"),
    [("psycopg2==2.9.1", True), ("psycopg2==2.9.9", False), ("psycopg2", False), ("psycopg2-binary==2.8.6", False)],
)
def test_an_old_psycopg2_is_replaced(tmp_path: Path, requirement: str, is_old: bool) -> None:
    write_files(tmp_path, {"requirements.txt": f"flask\n{requirement}", "app.py": "app = Flask(__name__)"})

    plan = detect.make_plan(make_request(tmp_path, wanted="auto"), Folder(tmp_path, ""))

    assert any("psycopg2-binary is installed in its place" in note for note in plan.notes) == is_old


def test_the_plan_names_the_bounds(tmp_path: Path) -> None:
    write_files(
        tmp_path, {"requirements.txt": "flask==2.2.5", "app.py": "from flask import Flask\napp = Flask(__name__)"}
    )
    request = make_request(tmp_path, wanted="auto")

    plan = detect.make_plan(request, detect.open_base(request))

    assert "newer versions do not fit to this project: werkzeug<3" in plan.notes


@pytest.mark.deep
@pytest.mark.anyio
async def test_a_pinned_flask_of_old_can_be_imported(tmp_path: Path) -> None:
    app = await release(tmp_path, {"main.py": "", "requirements.txt": "flask==1.1.2"})
    (app.folder / "shown.py").write_text("import flask; print(flask.__version__)")

    assert await app.run([".venv/bin/python", "shown.py"], app.launch("python shown.py")) == ("1.1.2\n", "")


@pytest.mark.deep
@pytest.mark.anyio
async def test_bounds_that_contradict_a_requirement_are_left_out(tmp_path: Path) -> None:
    setup = "from setuptools import setup\nsetup(name='helper', version='1', install_requires=['werkzeug>=3'])\n"
    requirements = "flask==2.2.5\n./helper\n"

    app = await release(tmp_path, {"main.py": "", "requirements.txt": requirements, "helper/setup.py": setup})

    assert "note: installing without the upper bounds that fit to the pinned versions" in app.log.system


@pytest.mark.deep
@pytest.mark.anyio
async def test_a_pinned_version_without_a_wheel_is_raised_to_one_that_has_it(tmp_path: Path) -> None:
    app = await release(tmp_path, {"main.py": "", "requirements.txt": "pillow==8.0.0\nsix==1.16.0\n"})
    (app.folder / "shown.py").write_text("import PIL, six; print(PIL.__version__ > '8.0.0', six.__version__)")

    assert await app.run([".venv/bin/python", "shown.py"], app.launch("python shown.py")) == ("True 1.16.0\n", "")
    assert "newer ones are installed (pillow>=8.0.0,<10)" in app.log.text("system")


@pytest.mark.parametrize(
    ("requirement", "fixed"),
    [
        ("Django==1.10.5", ("django==1.11.29",)),
        ("django==1.11.29", ()),
        ("Django==1.6", ()),
        ("django>=1.10", ()),
        ("Django==1.10.5 --hash=sha256:ab", ()),
        ("fastapi==0.63.0\npydantic==1.8.2", ("pydantic>=1.10.13,<2",)),
        ("pydantic==1.8.2\ntyping_extensions==3.7.4", ("pydantic>=1.10.13,<2", "typing-extensions>=4.2")),
        ("pydantic==1.10.13", ()),
        ("pydantic==2.5.0", ()),
    ],
)
def test_a_version_that_no_current_python_imports_is_replaced(
    tmp_path: Path, requirement: str, fixed: tuple[str, ...]
) -> None:
    write_files(tmp_path, {"requirements.txt": requirement})

    assert companions.fixed(Folder(tmp_path, "")) == fixed


def test_a_lock_has_no_version_that_no_current_python_imports() -> None:
    lock = "fastapi==0.63.0 --hash=sha256:ab\npydantic==1.8.2 --hash=sha256:cd\ntyping-extensions==3.7.4\n"

    assert companions.fixed_lock(lock) == (
        "fastapi==0.63.0 --hash=sha256:ab\npydantic>=1.10.13,<2\ntyping-extensions>=4.2\n"
    )
    assert companions.fixed_lock("pydantic==2.5.0\n") == "pydantic==2.5.0\n"
