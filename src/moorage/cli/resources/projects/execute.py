"""`moorage exec`: run a command in the live release of an app."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated

import typer
from msgspec import UNSET

from moorage.cli.help import single
from moorage.cli.output.terminal import is_terminal, log_text, note, plain, stop
from moorage.cli.session import connect
from moorage.cli.session.names import ProjectArgument
from moorage.client import models
from moorage.client.exchange import Call, path_part

app = single()


@app.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def _exec(
    name: ProjectArgument,
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", help="The command and its arguments.")],
    timeout: Annotated[int | None, typer.Option("--timeout", min=1, max=3600, help="Seconds; default: 300.")] = None,
) -> None:
    """Run a command in a fresh sandbox of the live release, with its environment.

    Its output is printed as it comes, and its exit code is the exit code of this command. Ctrl-C kills it. One argument
    is a line for the shell; several are passed as they are. Options of `moorage exec` stand before the name.

    Examples: `moorage exec api python manage.py migrate`, `moorage exec --timeout 60 api 'env | sort'`.
    """
    words = command[1:] if command[0] == "--" else command
    if not words:
        stop("name the command to run", 2)
    text = words[0] if len(words) == 1 else shlex.join(words)
    body = models.RunCommandInput(command=text, timeout_seconds=UNSET if timeout is None else timeout)
    call = Call("POST", f"/v1/projects/{path_part(name)}/exec", body=body)
    for event in connect.client().transport.follow(call):
        if event.name == "output":
            stream = sys.stderr if event.data.get("stream") == "stderr" else sys.stdout
            output = str(event.data.get("text", ""))
            stream.write(log_text(output) if is_terminal(stream) else output)
            stream.flush()
        elif event.name == "exit":
            if reason := event.data.get("reason"):
                note(f"moorage: {plain(reason)}")
            raise typer.Exit(int(event.data.get("exitCode", 1)))
    stop("the connection ended before the command did; it was killed")
