"""Renders the chart with Caddy, whose template handler has Go's templates and the functions of Sprig, as Helm has.

The templates of the chart use only what both have: no `include`, `toYaml`, `tpl`, `lookup` or `required`.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tests.ports import free_port

from moorage.gateway.caddy import find_caddy

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "moorage"
START_S = 30


def default_values() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return found


def merged(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with changes, merged key by key as Helm does."""
    found = dict(values)
    for name, value in changes.items():
        before = found.get(name)
        found[name] = merged(before, value) if isinstance(value, dict) and isinstance(before, dict) else value
    return found


@dataclass(frozen=True)
class Renderer:
    """A Caddy that executes the templates in a folder."""

    folder: Path
    port: int

    def render(self, changes: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Return all objects of the chart with the default values and some changes."""
        chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
        values = {
            "Values": merged(default_values(), changes or {}),
            "Release": {"Name": "harbor", "Namespace": "platform"},
            "Chart": {"Name": chart["name"], "AppVersion": chart["appVersion"]},
        }
        templates = sorted((CHART / "templates").glob("*.yaml"))
        found = [item for path in templates for item in yaml.safe_load_all(self._execute(path, values))]
        return [item for item in found if item]

    def _execute(self, path: Path, values: Mapping[str, Any]) -> str:
        helpers = (CHART / "templates" / "_helpers.tpl").read_text()
        literal = json.dumps(json.dumps(values))  # A literal of Go has the escapes of JSON.
        file = f'{{{{ define "file" }}}}{path.read_text()}{{{{ end }}}}'
        page = f'{helpers}{file}{{{{ template "file" (fromJson {literal}) }}}}'
        (self.folder / path.name).write_text(page)
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{path.name}", timeout=30) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            log = (self.folder / "log").read_text()[-2000:]
            raise AssertionError(f"{path.name} cannot be rendered: {log}") from error


def role_of(part: str = "") -> dict[str, Any]:
    """Return the ClusterRole of a part with an account of its own, or of all other parts."""
    name = f"platform-harbor-{part}" if part else "platform-harbor"
    with rendering() as renderer:
        items = renderer.render()
    (role,) = [item for item in items if (item["kind"], item["metadata"]["name"]) == ("ClusterRole", name)]
    return role


def permissions(part: str = "") -> set[tuple[str, str]]:
    """Return the verbs and resources that the chart permits."""
    rules = role_of(part)["rules"]
    return {(verb, resource) for rule in rules for verb in rule["verbs"] for resource in rule["resources"]}


@contextmanager
def rendering() -> Iterator[Renderer]:
    with tempfile.TemporaryDirectory(prefix="chart-") as name:
        folder, port = Path(name), free_port()
        templates = {"handler": "templates", "mime_types": ["text/plain"]}
        as_text = {"handler": "headers", "response": {"set": {"Content-Type": ["text/plain"]}}}
        files = {"handler": "file_server", "root": name}
        routes = [{"handle": [templates, as_text, files]}]
        server = {"listen": [f"127.0.0.1:{port}"], "routes": routes, "automatic_https": {"disable": True}}
        config = {"admin": {"disabled": True}, "apps": {"http": {"servers": {"chart": server}}}}
        (folder / "caddy.json").write_text(json.dumps(config))
        argv = [str(find_caddy()), "run", "--config", str(folder / "caddy.json")]
        with (folder / "log").open("wb") as log:
            caddy = subprocess.Popen(argv, stderr=log, stdout=log, env={"HOME": name})
            try:
                _wait(port)
                yield Renderer(folder, port)
            finally:
                caddy.terminate()
                caddy.wait()


def _wait(port: int) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/none", timeout=1).close()
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("Caddy did not start")
