"""`moorage deploy`."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from moorage.cli import manifest
from moorage.cli.deploy import plan as plans
from moorage.cli.deploy import run, target
from moorage.cli.deploy.archive import find_contents, list_files
from moorage.cli.deploy.git import GitFailed
from moorage.cli.deploy.plan import FolderPlan, NotDeployable
from moorage.cli.deploy.snapshot import TooLarge
from moorage.cli.deploy.target import NameTaken, Settings, Target
from moorage.cli.help import single
from moorage.cli.manifest import Manifest
from moorage.cli.manifest.commands import PruneOption, YesOption, apply_changes, confirm_removals
from moorage.cli.manifest.commands import find as find_manifest
from moorage.cli.output.tables import JsonOption, show_json
from moorage.cli.output.terminal import is_terminal, note, paint, plain, say, stop
from moorage.cli.session import connect
from moorage.client import Client

app = single()

INTERRUPTED = 130
AFFECTS_APP = ("project", "database")  # kinds of resources whose change a running app does not see


@dataclass(frozen=True, slots=True)
class Removal:
    prune: bool
    is_confirmed: bool


@app.command("deploy")
def _deploy(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="Folder to deploy.")] = Path(),
    name: Annotated[str | None, typer.Option("--name", help="Name of the project; default: the folder's name.")] = None,
    branch: Annotated[str, typer.Option("--branch", help="Branch that the folder is sent to; default: main.")] = "",
    env: Annotated[
        list[str] | None, typer.Option("--env", metavar="K=V", help="Set a variable; may be repeated.")
    ] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(
            "--secret", metavar="K", help="Set a secret; its value is asked for, or taken from the variable K."
        ),
    ] = None,
    shows_plan: Annotated[bool, typer.Option("--plan", help="Show what would happen, and change nothing.")] = False,
    prune: PruneOption = False,
    yes: YesOption = False,
    waits: Annotated[bool, typer.Option("--wait/--no-wait", help="Follow the deployment to its end.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Deploy a folder and print its address.

    Detects the kind of the folder, shows the plan, creates the project on first use, sends the files and follows the
    build log. A folder of static files without git is sent as a ZIP archive. Any other folder is sent as one commit of
    its present state, without the files of .gitignore and .moorageignore; your own git repository is not changed.

    Settings of moorage.toml are applied first, after the difference between the file and the platform was shown.
    Nothing is removed without --prune.

    Exits with code 1 and the reason if the deployment fails. Ctrl-C leaves the deployment running.

    Examples: `moorage deploy`, `moorage deploy site --name hello`, `moorage deploy --env MODE=fast --secret API_KEY`.
    """
    folder = folder.resolve()
    try:
        file = find_manifest(folder)
        plan = _plan(folder, file)
        values = {each: _secret_value(each) for each in secret or []}
        settings = Settings(branch or _wanted(file, "branch", "main"), _pairs(env or []), values, file)
        name = name or _wanted(file, "name", plans.project_name(folder))
        removal = Removal(prune, yes)
        _run(plan, name, settings, removal, shows_plan=shows_plan, waits=waits, as_json=as_json)
    except (NotDeployable, TooLarge, NameTaken) as error:
        stop(str(error))
    except GitFailed as error:
        stop(f"the folder could not be sent: {error}")


def _plan(folder: Path, file: Manifest | None) -> FolderPlan:
    kind = _wanted(file, "kind", "auto")
    base_dir, start_cmd = _wanted(file, "base-dir", "./"), _wanted(file, "start-cmd", "")
    return plans.make(folder, base_dir=base_dir, start_cmd=start_cmd, kind=kind)


def _wanted(file: Manifest | None, key: str, default: str) -> Any:
    """Return a setting of the project in moorage.toml."""
    project = file.project if file is not None else None
    return (project or {}).get(key, default)


def _run(
    plan: FolderPlan,
    name: str,
    settings: Settings,
    removal: Removal,
    *,
    shows_plan: bool,
    waits: bool,
    as_json: bool,
) -> None:
    if plan.way == "function":
        _deploy_function(plan, name, settings, shows_plan=shows_plan, waits=waits, as_json=as_json)
        return
    if not name:
        stop("the folder's name cannot be the name of a project; choose one with --name")
    client = connect.client()
    to = _find_target(client, name)
    _show_plan(plan, to)
    _show_difference(client, settings.file, removal)
    if shows_plan:
        return
    apply = partial(_apply, client, settings.file, removal) if settings.file is not None else None
    deployment = run.start(client, plan, to, settings, connect.selected().token, apply)
    if not waits:
        _started(deployment, as_json=as_json)
        return
    try:
        ended = run.finish(client, deployment)
    except KeyboardInterrupt:
        note(f"The deployment goes on. Follow it with: moorage deployments logs -f {deployment.name}")
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        show_json(deployment.as_json())
    elif ended.is_good:
        total = sum(deployment.seconds.values())
        steps = ", ".join(f"{step} {value:.1f} s" for step, value in deployment.seconds.items())
        note(f"deployed {deployment.name} in {total:.1f} s ({steps})", "green")
        say(plain(ended.url))
    if not ended.is_good:
        stop(f"the deployment of {deployment.name} {ended.status}: {plain(ended.reason) or 'see its log'}")


def _deploy_function(
    plan: FolderPlan, name: str, settings: Settings, *, shows_plan: bool, waits: bool, as_json: bool
) -> None:
    """Deploy a folder whose entry point is a function called `main`."""
    from moorage.cli.resources.functions.deploying import Wanted, deploy_folder

    for line in (f"function: {name}", *plan.lines):
        note(plain(line))
    if not shows_plan:
        wanted = Wanted(env=dict(settings.env), secrets=dict(settings.secrets))
        deploy_folder(plan.folder, name, plan.runtime, wanted, waits=waits, as_json=as_json)


def _show_difference(client: Client, file: Manifest | None, removal: Removal) -> None:
    """Show the difference between moorage.toml and the platform, and ask before anything is removed."""
    if file is None:
        return
    changes = manifest.plan(client, file)
    with redirect_stdout(sys.stderr):  # Standard output is for the address.
        manifest.show(changes, prune=removal.prune)
    confirm_removals(changes, prune=removal.prune, yes=removal.is_confirmed)


def _apply(client: Client, file: Manifest, removal: Removal) -> bool:
    """Apply moorage.toml to the existing project; report whether its app has to be deployed again."""
    changes = manifest.plan(client, file)
    apply_changes(changes, prune=removal.prune)
    return any(each.is_due(prune=removal.prune) and each.kind in AFFECTS_APP for each in changes)


def _find_target(client: Client, name: str) -> Target:
    """Return the project of a name; asks for another name where it is taken and a terminal can answer."""
    while True:
        try:
            return target.find(client, name)
        except NameTaken as error:
            if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
                raise
            name = typer.prompt(f"The name {name} is taken. Another name", default=error.free, err=True)


def _show_plan(plan: FolderPlan, to: Target) -> None:
    names = list_files(plan.folder)
    paths = find_contents(plan.folder, names)
    size = sum(os.path.getsize(path) for path in paths.values())
    count, way = (len(paths), "a ZIP archive") if plan.way == "zip" else (len(names), "one commit")
    action = "create" if to.project is None else "update"
    note(f"{paint('project:', 'bold', stream=sys.stderr)}  {to.name} ({action})")
    for line in plan.lines:
        note(plain(line))
    note(f"send:     {count} files, {size / 1024:,.0f} KB, as {way}")


def _started(deployment: run.Deployment, *, as_json: bool) -> None:
    if as_json:
        show_json(deployment.as_json())
        return
    say(deployment.uuid)
    note(f"Follow it with: moorage deployments logs -f {deployment.name}")


def _pairs(texts: list[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            stop(f"--env needs NAME=VALUE, not {plain(text)}")
        pairs[name] = value
    return pairs


def _secret_value(name: str) -> str:
    """Return the value of a secret: typed, or from the environment variable of its name. Never an argument."""
    if (value := os.environ.get(name)) is not None:
        return value
    if not is_terminal(sys.stdin):
        stop(f"the value of the secret {plain(name)} is missing; set the environment variable of that name")
    typed: str = typer.prompt(f"Value of {name}", hide_input=True, err=True)
    return typed
