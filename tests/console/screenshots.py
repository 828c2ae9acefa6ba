"""Writes pictures of the main pages in both themes, from a real platform with a few resources: `make screenshots`.

A person looks at each picture before it is committed. Only the pages of DOCUMENTED are written; `--all` writes every
page in three widths, to look at.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
import urllib.request
import uuid
import zipfile
from pathlib import Path
from typing import Any

from bench.browser import chromium
from tests.console.support import Console, Scheme
from tests.platform.running import Running, running

PAGES = {
    "home": "/",
    "projects": "/projects",
    "project": "/projects/harbor",
    "create-project": "/projects/new",
    "environment": "/projects/harbor/environment",
    "rules": "/projects/harbor/rules?test=/blog/2026/launch",
    "activity": "/activity",
    "tokens": "/settings/tokens",
    "functions": "/functions",
    "function": "/functions/thumbnails",
    "create-function": "/functions/new",
    "create-schedule": "/schedules/new",
    "monitors": "/monitors",
    "monitor": "/monitors/1",
    "database": "/databases/orders",
    "query": "/databases/orders/query/public/ships",
    "operator": "/operator",
}
DOCUMENTED = ("home", "rules", "function", "query", "monitor")  # in README and docs
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
SITES = ("harbor", "lighthouse", "docs", "landing")
STATEMENTS = (
    "CREATE TABLE ships (id serial PRIMARY KEY, name text NOT NULL, tons numeric, built date)",
    "INSERT INTO ships (name, tons, built)"
    " SELECT 'Ship ' || i, i * 1.5, date '2020-01-01' + i FROM generate_series(1, 90) AS i",
)
CHECKS = 4  # of a monitor, so that its chart has a line
FUNCTION = "def main(params):\n    return {'statusCode': 200, 'body': 'hello'}\n"


def archive(files: dict[str, str]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as packed:
        for name, text in files.items():
            packed.writestr(name, text)
    return target.getvalue()


def upload(platform: Running, path: str, fields: dict[str, str | bytes]) -> Any:
    """Send a form; bytes are a file."""
    edge = uuid.uuid4().hex
    body = b""
    for name, value in fields.items():
        file = '; filename="files.zip"' if isinstance(value, bytes) else ""
        head = f'--{edge}\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'
        body += head.encode() + (value if isinstance(value, bytes) else value.encode()) + b"\r\n"
    headers = {
        "Authorization": f"Bearer {platform.token()}",
        "Content-Type": f"multipart/form-data; boundary={edge}",
    }
    request = urllib.request.Request(platform.url + path, body + f"--{edge}--\r\n".encode(), headers, method="POST")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def fill(platform: Running) -> None:
    """Create what the pictures show."""
    for name in SITES:
        page = f"<!doctype html><title>{name}</title><h1>{name}</h1>"
        upload(
            platform, "/v1/projects/static-upload?wait=30", {"name": name, "staticFiles": archive({"index.html": page})}
        )
    for name in ("thumbnails", "webhook-relay"):
        upload(platform, "/v1/functions", {"name": name, "runtime": "python", "code": archive({"main.py": FUNCTION})})
    monitors = {
        "Harbor": f"http://harbor.localhost:{platform.ports['gateway']}",
        "Payments": "http://localhost:9/health",
    }
    headers = {"Authorization": f"Bearer {platform.token()}"}
    database = {"name": "orders", "type": "postgresql", "version": "16.4.0", "instanceType": "micro"}
    platform.call("POST", "/v1/databases?wait=9", headers=headers, json_body=database)
    for sql in STATEMENTS:
        platform.call("POST", "/v1/databases/orders/query", headers=headers, json_body={"sql": sql, "write": True})
    for name, url in monitors.items():
        body = {"name": name, "url": url, "interval": 30, "retries": 0}
        platform.call("POST", "/v1/monitors?wait=20", headers=headers, json_body=body)
    fill_project(platform, "harbor")
    beats = "/v1/monitors/1/heartbeats"
    platform.wait_until(lambda: len(platform.call("GET", beats, headers=headers)[1]["data"]) >= CHECKS, 300)


def fill_project(platform: Running, name: str) -> None:
    """Give a project variables, secrets, rules and visitors."""
    headers = {"Authorization": f"Bearer {platform.token()}"}
    env = {"API_URL": "https://api.example.com", "LOG_LEVEL": "info"}
    secrets = {"STRIPE_KEY": "sk_live_4eC39", "SESSION_SECRET": "f3a9"}
    redirects = [
        ("/old", "/new", 301),
        ("/blog/*", "https://blog.example.com/*", 302),
        ("/p/:id", "/products/:id", 308),
    ]
    rules = [("/assets/*", "Cache-Control", "max-age=31536000"), ("/*", "X-Frame-Options", "DENY")]
    settings = {
        "env": [{"name": key, "value": value} for key, value in env.items()],
        "secrets": [{"name": key, "value": value} for key, value in secrets.items()],
        "enableAnalytics": True,
    }
    platform.call("PATCH", f"/v1/projects/{name}", headers=headers, json_body=settings)
    listed = [{"source": source, "destination": to, "status": status} for source, to, status in redirects]
    platform.call("PUT", f"/v1/projects/{name}/redirects", headers=headers, json_body={"redirects": listed})
    named = [{"source": source, "name": header, "value": value} for source, header, value in rules]
    platform.call("PUT", f"/v1/projects/{name}/headers", headers=headers, json_body={"headers": named})
    for number in range(40):
        sent = {"Host": f"{name}.localhost", "User-Agent": f"Mozilla/5.0 Firefox/{100 + number % 23}"}
        platform.call("GET", "/" if number % 3 else "/index.html", headers=sent, port="gateway")


def main(target: Path, pages: tuple[str, ...], widths: tuple[int, ...]) -> None:
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        with running(Path(folder) / "data", env={"MOORAGE_RATE_LIMIT": "1000000"}) as platform, chromium() as browser:
            fill(platform)
            console = Console(platform, browser)
            for scheme in SCHEMES:
                for width in widths:
                    take(console, target, pages, scheme, width)


def take(console: Console, target: Path, pages: tuple[str, ...], scheme: Scheme, width: int) -> None:
    ending = f"{scheme}.png" if width == 1440 else f"{scheme}-{width}.png"
    with console.visit(scheme=scheme, width=width) as visit:
        if "sign-in" in pages:
            visit.open("/")
            visit.page.wait_for_selector("button.primary")
            visit.page.screenshot(path=target / f"console-sign-in-{ending}")
        visit.sign_in()
        for name in pages:
            if name == "sign-in":
                continue
            visit.settle(PAGES[name])
            visit.page.wait_for_timeout(800)  # Live pages never stop loading.
            visit.page.screenshot(path=target / f"console-{name}-{ending}")
            print(target / f"console-{name}-{ending}", flush=True)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    if "--all" in sys.argv:
        main(folder, ("sign-in", *PAGES), (1440, 1024, 390))
    else:
        main(folder, DOCUMENTED, (1440,))
