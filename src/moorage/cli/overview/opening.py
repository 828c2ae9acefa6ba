"""`moorage open`: a project or the console in the browser."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from moorage.cli.help import single
from moorage.cli.output.terminal import note, plain, say
from moorage.cli.session import connect
from moorage.cli.session.names import argument

app = single()


@app.command("open")
def _open(
    name: Annotated[str | None, argument("project", "Name of the project; default: the console.")] = None,
    console: Annotated[bool, typer.Option("--console", help="Open the project's page of the console.")] = False,
    print_only: Annotated[bool, typer.Option("--print", help="Print the address, and open nothing.")] = False,
) -> None:
    """Open the site of a project, or the console, in the browser.

    Without a display the address is printed only.

    Examples: `moorage open`, `moorage open shop`, `moorage open shop --console`.
    """
    client = connect.client()
    url = f"{client.transport.url}/"
    if name is not None:
        project = client.projects.read(name)
        url = f"{url}projects/{project.name}" if console else project.project_url
    say(plain(url))
    if not print_only and has_browser() and not show_page(url):
        note("no browser could be started; open the address above", "dim")


def has_browser() -> bool:
    """Report whether a page can be shown: a desktop, or a program that BROWSER names."""
    if sys.platform in ("darwin", "win32"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def show_page(url: str) -> bool:
    """Open an address of http or https in the browser."""
    import webbrowser

    return url.startswith(("https://", "http://")) and webbrowser.open(url)
