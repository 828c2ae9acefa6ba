"""`moorage functions dev`: run a function on this machine, as the platform runs it."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli.output.terminal import stop
from moorage.cli.resources.functions.folders import (
    EnvOption,
    FolderArgument,
    HandleOption,
    NameOption,
    RawOption,
    RuntimeOption,
    name_of,
    runtime_of,
    variables_of,
)
from moorage.cli.session import contexts
from moorage.products.functions.contents import BadPackage
from moorage.runtime.workers import runtimes

if TYPE_CHECKING:
    from moorage.runtime.workers.runtimes import Runtime

DEFAULT_PORT = 8787
PORTS_TRIED = 20
NEEDED = ("httptools",)


def dev(
    folder: FolderArgument = Path(),
    name: NameOption = None,
    runtime: RuntimeOption = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help=f"Port; default: {DEFAULT_PORT}, or one after it.")
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Address or host name to listen on.")] = "127.0.0.1",
    env: EnvOption = None,
    timeout: Annotated[int, typer.Option("--timeout", min=1000, max=900_000, help="Milliseconds per call.")] = 60_000,
    memory: Annotated[int, typer.Option("--memory", min=128, max=2048, help="MB, for messages only.")] = 256,
    raw_http: RawOption = None,
    handle_options: HandleOption = None,
) -> None:
    """Run a function on this machine and load it again after each save.

    The HTTP server, the worker programs and the rules for params and responses are those of the platform. Variables
    come from the file .env in the folder and from --env. Requests, logs and errors with their stack are printed as they
    come. Memory and network are not limited. Requests to host names other than localhost and --host are refused.

    Examples: `moorage functions dev`, `moorage functions dev hello --port 9000 --env MODE=test`.
    """
    if missing := [each for each in NEEDED if importlib.util.find_spec(each) is None]:
        stop(f"functions dev needs {missing[0]}, a part of the server; install it with: pip install 'moorage[server]'")
    from moorage.cli.dev.dotenv import BadEnvFile
    from moorage.cli.dev.server import DevServer, Options

    options = Options(
        folder=folder,
        name=name_of(folder, name),
        runtime=_installed(runtime_of(folder, runtime)),
        host=host,
        ports=range(DEFAULT_PORT, DEFAULT_PORT + PORTS_TRIED) if port is None else range(port, port + 1),
        org=_organization(),
        timeout_ms=timeout,
        memory_mb=memory,
        raw_http=bool(raw_http),
        own_options=bool(handle_options),
        env=variables_of(env),
    )

    async def serve() -> None:
        await DevServer(options).run()

    try:
        asyncio.run(serve())
    except BadPackage as error:
        stop(f"the folder {folder} {error}")
    except BadEnvFile as error:
        stop(str(error))
    except OSError as error:
        stop(f"cannot listen on {host}: {error.strerror or error}; choose another port with --port")


def _organization() -> str:
    """Return the organization of the current context, for the addresses; 1 without a context."""
    try:
        organization = contexts.selected()[1].organization
    except contexts.BadContextFile:
        return "1"
    return organization if organization.isdecimal() and int(organization) else "1"


def _installed(requested: str) -> Runtime:
    """Return an installed runtime: one that the platform would find here, or a Node.js of the user's PATH."""
    known = runtimes.installed()
    runtime_name = runtimes.resolve(requested)
    if runtime_name is not None:
        return known[runtime_name]
    language, _, version = requested.partition(":")
    if language == "nodejs" and (node := _node_of_path()) is not None and version in ("", node.name.partition(":")[2]):
        return node
    if language in runtimes.LANGUAGES:
        names = [name for name in known if name.startswith(f"{language}:")]
        advice = f"installed are {', '.join(names)}" if names else "install Node.js, or: pip install 'moorage[server]'"
        stop(f"the runtime {requested} is not installed here; {advice}")
    raise typer.BadParameter(f"{requested} should be nodejs or python, such as nodejs or python:3.11")


def _node_of_path() -> Runtime | None:
    program = shutil.which("node")
    if program is None:
        return None
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    major = done.stdout.strip().lstrip("v").partition(".")[0]
    if not major.isdecimal() or int(major) < runtimes.OLDEST_NODE:
        return None
    return runtimes.Runtime(f"nodejs:{major}", "nodejs", Path(os.path.realpath(program)))
