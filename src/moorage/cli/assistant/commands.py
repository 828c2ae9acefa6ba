"""`moorage mcp`: tools for coding assistants."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from moorage.cli.help import single
from moorage.cli.output.terminal import is_terminal, note, stop
from moorage.cli.session import connect

app = single()


@app.command("mcp")
def _mcp(
    allow_writes: Annotated[
        bool, typer.Option("--allow-writes", help="Also offer tools that deploy, roll back, call functions and write.")
    ] = False,
    root: Annotated[
        Path, typer.Option("--root", help="Folder below which folders may be deployed.", file_okay=False, exists=True)
    ] = Path(),
) -> None:
    """Serve the Model Context Protocol on standard input and output, for coding assistants.

    The assistant starts this command. It sees the organization of the current context: status, logs, deployments,
    functions, databases, cronjobs and monitors. Without --allow-writes it can only read. Secrets are never part of an
    answer.

    Examples: `moorage mcp`, `moorage mcp --allow-writes --root ~/projects`.
    """
    connect.client()  # exits with advice where there is no credential
    try:
        from moorage.cli.assistant.server import make_server
        from moorage.cli.assistant.session import Session
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("moorage"):
            raise
        stop("the server for coding assistants is an extra; install it with: pip install 'moorage[mcp]'")
    if is_terminal():
        note("waiting for a client on standard input; a coding assistant starts this command. Ctrl-C ends it.")
    session = Session.open(connect.selected(), root, retries=connect.RETRIES)
    asyncio.run(make_server(session, allow_writes=allow_writes).run_stdio_async())
