"""`moorage functions new` and `moorage functions deploy`."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from moorage.cli.deploy.archive import packed
from moorage.cli.deploy.git import GitFailed
from moorage.cli.deploy.snapshot import TooLarge
from moorage.cli.output.asking import read_secret
from moorage.cli.output.progress import Spinner
from moorage.cli.output.tables import JsonOption, show_json
from moorage.cli.output.terminal import is_terminal, note, plain, say, stop
from moorage.cli.resources.functions import templates
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
from moorage.cli.session import connect
from moorage.client import Client, NotFound
from moorage.client.models import FunctionDetail, FunctionEnvVar, FunctionSecretUpsert
from moorage.products.functions.contents import BadPackage, find_main
from moorage.runtime.workers.runtimes import LANGUAGES

MAX_PACKED_MB = 10
WAIT_S = 60
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def new(
    name: Annotated[str, typer.Argument(help="Name of the function and of its folder.")],
    runtime: Annotated[str, typer.Option("--runtime", help="nodejs or python.")] = "nodejs",
    parent: Annotated[
        Path, typer.Option("--in", help="Folder in which the new one is made.", file_okay=False)
    ] = Path(),
) -> None:
    """Write a folder with a small function, ready to run and to deploy.

    Examples: `moorage functions new hello`, `moorage functions new resize --runtime python`.
    """
    if not _NAME.fullmatch(name):
        stop(f"the name {plain(name)} should have lower-case letters, digits and hyphens, at most 63")
    if runtime not in LANGUAGES:
        stop(f"--runtime should be one of {', '.join(LANGUAGES)}, not {plain(runtime)}")
    folder = parent / name
    if folder.exists() and any(folder.iterdir()):
        stop(f"{folder} exists and is not empty; choose another name")
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in templates.files_of(name, runtime).items():
        (folder / file).write_text(text, encoding="utf-8")
    say(str(folder))
    note(f"next: moorage functions dev {folder}, or moorage functions deploy {folder}")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Settings of the command; None keeps the stored value, or the platform's default at the first deployment."""

    timeout: int | None = None
    memory: int | None = None
    raw_http: bool | None = None
    handle_options: bool | None = None
    network: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)

    def fields(self) -> dict[str, Any]:
        named = {
            "timeout": self.timeout,
            "memory": self.memory,
            "raw_http": self.raw_http,
            "handle_options": self.handle_options,
            "network": self.network,
        }
        return {name: value for name, value in named.items() if value is not None}


def deploy(
    folder: FolderArgument = Path(),
    name: NameOption = None,
    runtime: RuntimeOption = None,
    memory: Annotated[int | None, typer.Option("--memory", min=128, max=2048, help="MB of one instance.")] = None,
    timeout: Annotated[
        int | None, typer.Option("--timeout", min=1000, max=900_000, help="Milliseconds that a call may take.")
    ] = None,
    env: EnvOption = None,
    secret: Annotated[
        list[str] | None,
        typer.Option("--secret", metavar="K", help="A secret; its value is asked for, or read from standard input."),
    ] = None,
    network: Annotated[str | None, typer.Option("--network", help="internet or none.")] = None,
    raw_http: RawOption = None,
    handle_options: HandleOption = None,
    waits: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until calls reach the new version.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Deploy a folder: the first time as a new function, then as its next version.

    Sends the files of the folder as a ZIP archive, without those of .gitignore and .moorageignore and without .env. The
    platform installs the packages that package.json or requirements.txt list. Settings that are not given stay as they
    are; --env and --secret add to the stored ones.

    Examples: `moorage functions deploy`, `moorage functions deploy hello --memory 512 --env MODE=fast --secret KEY`.
    """
    wanted = Wanted(timeout, memory, raw_http, handle_options, network, variables_of(env), _secrets(secret or []))
    deploy_folder(folder, name_of(folder, name), runtime_of(folder, runtime), wanted, waits=waits, as_json=as_json)


def deploy_folder(folder: Path, called: str, language: str, wanted: Wanted, *, waits: bool, as_json: bool) -> None:
    """Deploy a folder as a function, and print its address."""
    began = time.monotonic()
    _check(folder, language)
    client, wait = connect.client(), WAIT_S if waits else None
    before = _find(client, called)
    try:
        with packed(folder) as (archive, count):
            _check_size(archive)
            packed_s = time.monotonic() - began
            with Spinner(f"deploying {called}: {count} files, {archive.stat().st_size / 1024:,.0f} KB"):
                if before is None:
                    function = _create(client, called, language, archive, wanted, wait)
                else:
                    function = _update(client, before, archive, wanted, wait)
    except (TooLarge, GitFailed) as error:
        stop(str(error))
    seconds = {"pack": packed_s, "deploy": time.monotonic() - began - packed_s}
    if as_json:
        show_json({"function": function, "isNew": before is None, "seconds": seconds})
        return
    steps = ", ".join(f"{step} {value:.1f} s" for step, value in seconds.items())
    note(f"deployed version {function.current_version} of {function.name} ({function.runtime}; {steps})", "green")
    say(plain(function.url))


def _secrets(names: list[str]) -> dict[str, str]:
    """Return the values of secrets; several come from standard input as one line each."""
    if len(names) < 2 or is_terminal(sys.stdin):
        return {name: read_secret(name) for name in names}
    lines = sys.stdin.read().splitlines()
    if len(lines) != len(names):
        stop(f"standard input has {len(lines)} lines for {len(names)} secrets; write one value on each line")
    return dict(zip(names, lines, strict=True))


def _check(folder: Path, runtime: str) -> None:
    """Apply the rules of the platform before anything is sent."""
    try:
        find_main(folder, runtime)
    except BadPackage as error:
        stop(f"the folder {folder} {error}")


def _check_size(archive: Path) -> None:
    size_mb = archive.stat().st_size / 2**20
    if size_mb > MAX_PACKED_MB:
        stop(
            f"the archive has {size_mb:.0f} MB, and at most {MAX_PACKED_MB} MB are sent; list files that the function "
            "does not need in .moorageignore"
        )


def _find(client: Client, name: str) -> FunctionDetail | None:
    try:
        return client.functions.read(name)
    except NotFound:
        return None


def _create(client: Client, name: str, runtime: str, archive: Path, wanted: Wanted, wait: int | None) -> FunctionDetail:
    env = [FunctionEnvVar(name=key, value=value) for key, value in wanted.env.items()]
    secrets = [FunctionEnvVar(name=key, value=value) for key, value in wanted.secrets.items()]
    return client.functions.create(
        name=name, runtime=runtime, env=env, secrets=secrets, file=archive, wait=wait, **wanted.fields()
    )


def _update(client: Client, before: FunctionDetail, archive: Path, wanted: Wanted, wait: int | None) -> FunctionDetail:
    """Change the settings that were given, then deploy the next version, so that it starts with them."""
    fields = wanted.fields()
    if wanted.env:
        fields["env"] = merged_env(before, wanted.env)
    if wanted.secrets:
        kept = [each.name for each in client.functions.list_secrets(before.name) if each.name not in wanted.secrets]
        fields["secrets"] = [
            *(FunctionSecretUpsert(name=name) for name in kept),
            *(FunctionSecretUpsert(name=name, value=value) for name, value in wanted.secrets.items()),
        ]
    if fields:
        client.functions.update(before.name, **fields)
    return client.functions.deploy(before.name, file=archive, wait=wait)


def merged_env(function: FunctionDetail, changes: dict[str, str]) -> list[FunctionEnvVar]:
    """Return the variables of a function with some of them set."""
    merged = {each.name: each.value for each in function.env} | changes
    return [FunctionEnvVar(name=name, value=value) for name, value in merged.items()]
