"""Names of resources for the shell: one quick request, and no output when it fails.

A completion function is given to `typer.Argument(autocompletion=...)`; `names.py` does that for the arguments that
commands share.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import typer

TIMEOUT_S: Final = 1.5  # of the request, while the user waits for the shell
# Path of the list of a kind of resource, and the field that a command takes.
LISTS: Final = {
    "project": ("/v1/projects?limit=100", "name"),
    "function": ("/v1/functions?pageSize=100", "name"),
    "schedule": ("/v1/scheduled-functions", "name"),
    "database": ("/v1/databases?pageSize=100", "name"),
    "cronjob": ("/v1/cronjobs?pageSize=100", "name"),
    "monitor": ("/v1/monitors", "name"),
    "organization": ("/v1/orgs", "slug"),
}
# The shell evaluates parts of a completion, so only harmless names are completed.
_HARMLESS = re.compile(r"[A-Za-z0-9._@/:-]+")

Complete = Callable[[typer.Context, str], list[str]]


def of(kind: str) -> Complete:
    """Return the completion function for the names of a kind of resource in LISTS."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        path, field = LISTS[kind]
        return _matching(names_in(_fetch(ctx, path), field), incomplete)

    return complete


def of_project(path: str, field: str) -> Complete:
    """Return the completion function for something in the project of this command, such as its domains."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        project = ctx.params.get("name")
        if not project:
            return []
        from moorage.client.exchange import path_part

        return _matching(names_in(_fetch(ctx, f"/v1/projects/{path_part(project)}/{path}"), field), incomplete)

    return complete


def contexts(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the names of contexts."""
    from moorage.cli.session import contexts as stored

    try:
        return _matching(stored.load().by_name, incomplete)
    except stored.BadContextFile:
        return []


def names_in(data: Any, field: str) -> list[str]:
    """Return the names in an answer, which is a list or a page; without an answer there are none."""
    items = data.get("items") if isinstance(data, dict) else data
    rows = items if isinstance(items, list) else []
    values = [row.get(field) if isinstance(row, dict) else None for row in rows]
    return [str(name) for name in values if name not in (None, "")]


def _matching(names: Any, incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete) and _HARMLESS.fullmatch(name)]


def _fetch(ctx: typer.Context, path: str) -> Any:
    """Return the data of one GET, or None: a shell has no place for an error."""
    import httpx2 as httpx

    from moorage.cli.session import contexts as stored
    from moorage.client.blocking import common_headers

    options = ctx.find_root().params
    try:
        context = stored.selected(options.get("context"), options.get("org"))[1]
        headers = common_headers(context.token, context.organization or None)
        response = httpx.get(f"{context.url}{path}", headers=headers, timeout=TIMEOUT_S)
        return response.json()["data"] if response.is_success else None
    except (stored.BadContextFile, httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError):
        return None
