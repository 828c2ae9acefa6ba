"""One resource of every kind, and the addresses of all pages of the console."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.console.accounts import call, make_site
from tests.console.screenshots import archive, upload
from tests.console.support import Console

CODE = "def main(params):\n    return 'ahoy'\n"
TABS = {
    "/projects/{site}": (
        *("", "/deployments", "/deployments/compare", "/previews", "/logs", "/metrics", "/visitors", "/domains"),
        *("/environment", "/rules?test=/old", "/console", "/activity", "/settings", "/deployments/{deployment}"),
    ),
    "/functions/{function}": (
        *("", "/test", "/invocations", "/metrics", "/versions", "/versions/1..2", "/environment", "/settings"),
    ),
    "/schedules/{schedule}": ("",),
    "/cronjobs/{cronjob}": ("", "/runs/{run}", "/settings"),
    "/databases/{database}": ("", "/metrics", "/backups", "/query", "/query/public/ships", "/settings"),
    "/monitors/{monitor}": ("", "/alerts", "/settings"),
    "/settings": ("", "/members", "/tokens", "/usage", "/registries", "/github"),
    "/account": ("", "/sessions", "/invitations", "/notifications"),
    "/operator": ("", "/machines", "/organizations", "/users", "/jobs", "/activity"),
}


@dataclass(frozen=True)
class World:
    """Names and numbers of what exists, by kind."""

    names: dict[str, str]

    def paths(self) -> list[str]:
        return [f"{base}{tab}".format(**self.names) for base, tabs in TABS.items() for tab in tabs]


def make_world(console: Console, stem: str) -> World:
    """Create one of each, with names that begin with a stem."""
    site = make_site(console, f"{stem}-site")
    call(console, "POST", f"/v1/projects/{site}/domains", {"domain": f"www.{stem}-example.com"})
    values: dict[str, Any] = {"env": [{"name": "A", "value": "1"}], "secrets": [{"name": "KEY", "value": "1"}]}
    call(console, "PATCH", f"/v1/projects/{site}", {**values, "enableAnalytics": True})
    redirect = {"source": "/old", "destination": "/new", "status": 301}
    call(console, "PUT", f"/v1/projects/{site}/redirects", {"redirects": [redirect]})
    function = f"{stem}-fn"
    fields: dict[str, str | bytes] = {"name": function, "runtime": "python", "code": archive({"main.py": CODE})}
    upload(console.running, "/v1/functions", fields)
    upload(console.running, f"/v1/functions/{function}/deploy", {"code": archive({"main.py": CODE + "\n"})})
    schedule = {"name": f"{stem}-schedule", "function": function, "cronSchedule": "0 3 * * *"}
    job = {"name": f"{stem}-job", "imageSource": "public_image", "publicImage": "localhost:9/nothing:1"}
    call(console, "POST", "/v1/cronjobs", {**job, "cronSchedule": "0 3 * * *", "instanceType": "micro"})
    database = {"name": f"{stem}-db", "type": "postgresql", "version": "16.4.0", "instanceType": "micro"}
    call(console, "POST", "/v1/databases?wait=9", database)
    for sql in ("CREATE TABLE ships (id integer PRIMARY KEY, name text)", "INSERT INTO ships VALUES (1, 'Aurora')"):
        call(console, "POST", f"/v1/databases/{stem}-db/query", {"sql": sql, "write": True})
    monitor = {
        "name": f"The {stem}",
        "url": f"http://{site}.localhost:{console.running.ports['gateway']}",
        "interval": 60,
    }
    names = {
        "site": site,
        "deployment": call(console, "GET", f"/v1/projects/{site}/deployments")["items"][0]["deploymentUuid"],
        "function": function,
        "schedule": str(call(console, "POST", "/v1/scheduled-functions", schedule)["id"]),
        "cronjob": f"{stem}-job",
        "run": call(console, "POST", f"/v1/cronjobs/{stem}-job/trigger")["executionUuid"],
        "database": f"{stem}-db",
        "monitor": str(call(console, "POST", "/v1/monitors?wait=9", monitor)["id"]),
    }
    return World(names)
