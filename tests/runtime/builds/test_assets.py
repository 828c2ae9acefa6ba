"""Pages, styles and scripts that npm packages build for servers in Python or Go, and for Hugo sites."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.runtime.builds.app_support import release
from tests.runtime.builds.build_support import make_request, write_files

from moorage.runtime.builds.detection import detect
from moorage.runtime.builds.ports import Assets

FLASK = {"requirements.txt": "flask", "app.py": "from flask import Flask\napp = Flask(__name__)\n"}
GO = """package main

import (
	_ "embed"
	"net/http"
)

%s
var pages []byte

func main() { http.ListenAndServe("", nil) }
"""
HUGO = {"hugo.toml": "title = 'Tides'", "content/_index.md": "tides"}
VITE = {"scripts": {"build": "vite build"}, "devDependencies": {"vite": "7"}}
IN_WEB = {"web/package.json": VITE}
READS_WEB = {**FLASK, "app.py": FLASK["app.py"] + "PAGES = 'web/dist'\n", **IN_WEB}


def go(line: str) -> dict[str, Any]:
    return {"go.mod": "module x", "main.go": GO % line, **IN_WEB}


def package(*packages: str, **scripts: str) -> dict[str, Any]:
    names = {name.replace("_", "-"): script for name, script in scripts.items()}
    return {"package.json": {"scripts": names, "devDependencies": dict.fromkeys(packages, "1")}}


def by_npm(build: str, folder: str = "") -> Assets:
    return Assets(folder, "npm install", build)


def assets_of(folder: Path, files: dict[str, Any], **changed: Any) -> Assets | None:
    request = make_request(write_files(folder, files), wanted="auto", **changed)
    return detect.make_plan(request, detect.open_base(request)).assets


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({**FLASK, **package(build="vite build")}, by_npm("npm run build"), id="python"),
        pytest.param(
            {**FLASK, **package(build="vite build"), "yarn.lock": ""},
            Assets("", "yarn install --frozen-lockfile", "yarn run build"),
            id="yarn",
        ),
        pytest.param(
            {**FLASK, **package(build="a", heroku_postbuild="b")},
            by_npm("npm run heroku-postbuild"),
            id="heroku-postbuild",
        ),
        pytest.param({**FLASK, **package(test="cypress run")}, None, id="tests only"),
        pytest.param(READS_WEB, by_npm("npm run build", "web"), id="a folder that python names"),
        pytest.param({**FLASK, **IN_WEB}, None, id="a folder that nothing names"),
        pytest.param(go("//go:embed web/dist/index.html"), by_npm("npm run build", "web"), id="go embeds a file"),
        pytest.param(go("//go:embed all:web/dist"), by_npm("npm run build", "web"), id="go embeds a folder"),
        pytest.param(go("//go:embed ../web/pages"), None, id="outside of the module"),
        pytest.param(go(""), None, id="go without embedded files"),
        pytest.param({**HUGO, **package("postcss-cli")}, by_npm(""), id="hugo with packages"),
        pytest.param(
            {**HUGO, **package("postcss-cli", build="hugo --minify")}, by_npm(""), id="hugo runs in the script"
        ),
        pytest.param(
            {**HUGO, **package("postcss-cli", build="run-s build-*", build_site="hugo")},
            by_npm(""),
            id="hugo runs in an inner script",
        ),
        pytest.param(
            {**HUGO, **package("vite", build="vite build")}, by_npm("npm run build"), id="hugo beside a bundler"
        ),
        pytest.param({**HUGO, **package(build="hugo")}, None, id="hugo without packages"),
        pytest.param({**package("vite", build="vite build"), "index.html": ""}, None, id="a site of node.js"),
    ],
)
def test_assets_are_found(tmp_path: Path, files: dict[str, Any], expected: Assets | None) -> None:
    assert assets_of(tmp_path, files) == expected


def test_an_own_build_command_builds_the_assets_itself(tmp_path: Path) -> None:
    assert assets_of(tmp_path, {**FLASK, **package(build="vite build")}, build_cmd="make pages") is None


def test_the_plan_names_the_commands_and_the_folder(tmp_path: Path) -> None:
    request = make_request(write_files(tmp_path, READS_WEB), wanted="auto")

    lines = detect.describe(detect.make_plan(request, detect.open_base(request)))

    assert "assets:   npm install && npm run build in web" in lines


SERVER = """
from pathlib import Path


def application(environ, start_response):
    page = Path("static/page.txt")
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [page.read_bytes() if page.is_file() else b"no page"]
"""
PACKAGE = {"scripts": {"build": "node build.js"}, "dependencies": {"tide": "file:tide"}}
TIDE = {"tide/package.json": {"name": "tide", "version": "1.0.0"}, "tide/index.js": "module.exports = 'high tide'"}
BUILD = "require('fs').mkdirSync('static', { recursive: true }); "
WRITE = "require('fs').writeFileSync('static/page.txt', require('tide'))"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("build", "answer", "said"),
    [
        (BUILD + WRITE, "high tide", "$ npm run build"),
        ("process.exit(3)", "no page", "npm run build failed: exit code 3; the app is deployed without"),
        (
            BUILD + "if (!process.env.NODE_OPTIONS?.includes('legacy')) throw Error('error:0308010C:digital envelope');"
            "else " + WRITE,
            "high tide",
            "--openssl-legacy-provider",
        ),
    ],
    ids=["built", "failed", "old digests"],
)
async def test_a_python_app_serves_what_npm_built_and_keeps_no_packages(
    tmp_path: Path, build: str, answer: str, said: str
) -> None:
    files = {"requirements.txt": "", "wsgi.py": SERVER, "package.json": PACKAGE, "build.js": build, **TIDE}

    app = await release(tmp_path, files, wanted="auto")

    assert (await app.answer())[0] == answer, app.log.text()
    assert said in "\n".join(app.log.system)
    assert not (app.folder / "node_modules").exists()


@pytest.mark.anyio
async def test_packages_stay_where_the_app_names_their_folder(tmp_path: Path) -> None:
    server = SERVER.replace("static/page.txt", "node_modules/tide/index.js")
    files = {"requirements.txt": "", "wsgi.py": server, "package.json": PACKAGE, "build.js": "", **TIDE}

    app = await release(tmp_path, files, wanted="auto")

    assert (await app.answer())[0] == TIDE["tide/index.js"]
