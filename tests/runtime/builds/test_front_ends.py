"""Repositories with a front end and servers in folders of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.runtime.builds.build_support import make_request, write_files

from moorage.runtime.builds.detection import detect
from moorage.runtime.builds.detection.table import front_ends
from moorage.runtime.builds.ports import BuildFailed, Plan

VITE = {"scripts": {"build": "vite build", "dev": "vite"}, "devDependencies": {"vite": "7"}}
API = {"requirements.txt": "fastapi", "main.py": "from fastapi import FastAPI\napp = FastAPI()"}
SERVER = "const app = require('express')();\n%s\napp.listen(process.env.PORT);\n"
EXPRESS = {"scripts": {"start": "node server.js"}, "dependencies": {"express": "4"}}


def below(place: str, files: dict[str, Any]) -> dict[str, Any]:
    return {f"{place}/{name}": text for name, text in files.items()}


def plan_of(folder: Path, files: dict[str, Any]) -> tuple[str, Plan]:
    request = make_request(write_files(folder, files), wanted="auto")
    found = detect.open_base(request)
    return found.base, detect.make_plan(request, found)


@pytest.mark.parametrize(
    ("places", "chosen"),
    [
        (("client", "server"), "client"),
        (("services/backend", "services/frontend"), "services/frontend"),
        (("api", "worker"), "api"),
        (("api", "server"), ""),
        (("client", "web"), ""),
        (("client", "shop"), ""),
        (("one", "two"), ""),
        (("express-back-end", "react-front-end"), "react-front-end"),
        (("shop_client", "shop_server"), "shop_client"),
        (("todo-api", "worker"), "todo-api"),
        (("web-server", "web-client"), "web-client"),
        (("admin-frontend", "shop-frontend", "backend"), ""),
        (("shop-frontend", "mobile"), ""),
    ],
)
def test_names_of_folders_choose_an_app(places: tuple[str, ...], chosen: str) -> None:
    assert front_ends.choose(places) == chosen


INSTALL = "npm install --prefix server --no-audit --no-fund"


@pytest.mark.parametrize(
    ("scripts", "server", "build"),
    [
        ({"start": "cd server && npm i && npm start"}, EXPRESS, INSTALL),
        ({"start": "npm start --prefix ./server"}, EXPRESS, INSTALL),
        ({"start": "node server/src/index.js", "build": "vite build"}, EXPRESS, f"npm run build && {INSTALL}"),
        (
            {"start": "cd server && npm start"},
            {**EXPRESS, "scripts": {"start": "node dist/a.js", "build": "tsc"}},
            f"{INSTALL} && npm run build --prefix server",
        ),
        (
            {"start": "cd server && npm start"},
            {**EXPRESS, "scripts": {"start": "nodemon server.js"}},
            f"{INSTALL} nodemon",
        ),
        ({"start": "cd server && npm start", "postinstall": "cd server && npm install"}, EXPRESS, ""),
        ({"start": "cd server && npm start"}, {"scripts": {"start": "node a.js"}}, ""),
        ({"start": "cd ../server && npm start"}, EXPRESS, ""),
        ({"start": "node ./server.js"}, EXPRESS, ""),
    ],
)
def test_a_server_in_a_folder_that_the_start_enters_is_installed(
    tmp_path: Path, scripts: dict[str, str], server: dict[str, Any], build: str
) -> None:
    package = {"scripts": scripts, "dependencies": {"express": "5"}}

    _, plan = plan_of(tmp_path, {"package.json": package, "server/package.json": server})

    assert (plan.start, plan.build) == ("npm start", build)


@pytest.mark.parametrize(
    "root", [{}, {"package.json": {"scripts": {"dev": "concurrently a b"}}}], ids=["none", "shell"]
)
def test_the_front_end_is_deployed_and_the_log_names_the_others(tmp_path: Path, root: dict[str, Any]) -> None:
    base, plan = plan_of(tmp_path, {**root, **below("client", {"package.json": VITE}), **below("server", API)})

    assert (base, plan.kind, plan.framework) == ("client", "static", "Vite")
    assert plan.notes[0] == (
        "client is deployed, of the apps in client, server; another project with baseDir deploys another one"
    )


def test_the_only_site_beside_servers_is_the_front_end(tmp_path: Path) -> None:
    base, plan = plan_of(tmp_path, {**below("tide-pages", {"package.json": VITE}), **below("src", API)})

    assert (base, plan.framework) == ("tide-pages", "Vite")


def test_a_dockerfile_builds_several_apps_whose_python_files_are_one_of_them(tmp_path: Path) -> None:
    files = {**below("tides", API), **below("harbor", {"package.json": EXPRESS, "server.js": SERVER % ""})}

    base, plan = plan_of(tmp_path, {**files, "Dockerfile": "FROM python:3.14\n"})

    assert (base, plan.language) == ("", "docker")


def test_a_front_end_without_a_build_is_no_choice(tmp_path: Path) -> None:
    with pytest.raises(BuildFailed, match="there are several apps, in client, server: set baseDir"):
        plan_of(tmp_path, {"client/package.json": {}, **below("server", API)})


@pytest.mark.parametrize(
    ("line", "built"),
    [
        ("app.use(express.static('client/build'));", "client"),
        ("app.use(express.static(path.join(__dirname, 'frontend', 'dist')));", "frontend"),
        ("app.use(express.static(`${__dirname}/../client/dist`));", "client"),
        ("app.use(express.static('public'));", ""),
    ],
)
def test_a_server_builds_the_pages_that_it_serves(tmp_path: Path, line: str, built: str) -> None:
    files = {"package.json": EXPRESS, "server.js": SERVER % line}

    base, plan = plan_of(tmp_path, {**files, "client/package.json": VITE, "frontend/package.json": VITE})

    command = f"npm install --prefix {built} --no-audit --no-fund && npm run build --prefix {built}" if built else ""
    assert (base, plan.build) == ("", command)


BUILDS = {"scripts": {"build": "npm --prefix site run build", "start": "npm --prefix site run dev"}}
PAGES = {"package.json": {"scripts": {"build": "astro build"}, "dependencies": {"astro": "5"}}}


@pytest.mark.parametrize(
    ("scripts", "base"),
    [
        (BUILDS["scripts"], "site"),
        ({"build": "cd site && npm install && npm run build"}, "site"),
        ({"build": "npm run build --prefix site", "start": "npm start --prefix shop"}, ""),
        ({"build": "npm run build --prefix site && cp -r site/dist shop"}, ""),
        ({"build": "npm run build --prefix ../site"}, ""),
    ],
)
def test_the_only_folder_that_the_scripts_build_is_deployed(tmp_path: Path, scripts: dict[str, str], base: str) -> None:
    shop = {"requirements.txt": "flask", "app.py": "from flask import Flask\napp = Flask(__name__)"}
    files = {"package.json": {"scripts": scripts}, **below("site", PAGES), **below("shop", shop)}

    found, plan = plan_of(tmp_path, files)

    assert (found, plan.framework) == ((base, "Astro") if base else ("", "Flask"))
    why = "the script `build` of package.json builds site, which is deployed; baseDir chooses another folder"
    assert (why in plan.notes) == bool(base)


@pytest.mark.parametrize(
    "root",
    [
        {"pyproject.toml": "[tool.ruff]\nline-length = 100"},
        {"setup.cfg": "[flake8]\nmax-line-length = 88", "requirements.txt": "flake8"},
        {"package.json": {"scripts": {"e2e": "cypress run"}, "devDependencies": {"cypress": "13"}}},
    ],
    ids=["settings", "setup.cfg", "Cypress"],
)
def test_a_base_folder_with_checks_only_is_no_app(tmp_path: Path, root: dict[str, Any]) -> None:
    found, plan = plan_of(tmp_path, {**root, **below("api", API)})

    assert (found, plan.framework) == ("api", "FastAPI")


@pytest.mark.parametrize("text", ["[project]\nname = 'shop'", "[tool.poetry]\nname = 'shop'", "[build-system]"])
def test_a_base_folder_with_a_package_is_an_app(tmp_path: Path, text: str) -> None:
    found, _ = plan_of(tmp_path, {"pyproject.toml": text, **below("api", API)})

    assert found == ""
