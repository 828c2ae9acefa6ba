"""`moorage diff` and `moorage apply`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from moorage.cli import manifest
from moorage.cli.help import single
from moorage.cli.manifest.changes import Action, Change, is_difference, missing_secrets
from moorage.cli.manifest.reading import FILE_NAME, Manifest, ManifestError
from moorage.cli.manifest.showing import title_of
from moorage.cli.output.tables import JsonOption
from moorage.cli.output.terminal import is_terminal, note, plain, stop
from moorage.cli.session import connect

app = single()

FolderArgument = Annotated[Path, typer.Argument(metavar="DIR", help=f"Folder with {FILE_NAME}, or the file.")]
PruneOption = Annotated[bool, typer.Option("--prune", help="Also remove what the file does not have.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def read(folder: Path) -> Manifest:
    """Return the settings of a folder; exits with the problems, or with advice where there is no file."""
    settings = find(folder)
    if settings is None:
        stop(f"there is no {FILE_NAME} in {folder}; write one with: moorage init")
    return settings


def find(folder: Path) -> Manifest | None:
    """Return the settings of a folder, or None without the file; exits with the problems of a wrong file."""
    try:
        return manifest.load(folder)
    except ManifestError as error:
        refuse(error)


def refuse(error: ManifestError) -> NoReturn:
    """Exit with the problems of a file, one in each line."""
    for number, text in enumerate(error.problems):
        note(f"{'moorage: ' if number == 0 else '         '}{plain(text)}")
    raise typer.Exit(1)


@app.command("diff")
def _diff(
    folder: FolderArgument = Path(),
    prune: PruneOption = False,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with code 1 where there is a difference.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the difference between moorage.toml and the platform.

    Changes nothing. `+` is new, `~` changes, `-` is on the platform only and stays without --prune.

    Examples: `moorage diff`, `moorage diff --exit-code site/`, `moorage diff --json`.
    """
    changes = manifest.plan(connect.client(), read(folder))
    manifest.show(changes, as_json=as_json, prune=prune)
    if exit_code and any(map(is_difference, changes)):
        raise typer.Exit(1)


@app.command("apply")
def _apply(
    folder: FolderArgument = Path(),
    prune: PruneOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make the platform as moorage.toml says.

    Shows the difference first. Applying twice changes nothing the second time. Nothing is removed without --prune, and
    a database only after its name was typed, or with --yes. Stops at the first error and says what was applied. Exits
    with code 1 where a secret that the file names is not set.

    Examples: `moorage apply`, `moorage apply --prune`, `moorage apply site/ --yes`.
    """
    client, wanted = connect.client(), read(folder)
    changes = manifest.plan(client, wanted)
    if not as_json:
        manifest.show(changes, prune=prune)
    confirm_removals(changes, prune=prune, yes=yes)
    apply_changes(changes, prune=prune)
    if as_json:
        manifest.show(changes, as_json=True)
    if missing := missing_secrets(manifest.plan(client, wanted) if missing_secrets(changes) else []):
        stop(f"set these secrets with `moorage secrets set`: {', '.join(map(plain, missing))}")


def apply_changes(changes: list[Change], *, prune: bool) -> None:
    """Apply changes and name each on standard error; exits where the file cannot be applied."""
    try:
        manifest.apply(connect.client(), changes, prune=prune, on_applied=_applied)
    except ManifestError as error:
        refuse(error)


def _applied(change: Change) -> None:
    words = {Action.CREATE: "created", Action.UPDATE: "changed", Action.DELETE: "deleted"}
    note(f"{words[change.action]} {title_of(change)}", "green")


def confirm_removals(changes: list[Change], *, prune: bool, yes: bool) -> None:
    """Ask before anything is deleted; for a database its name has to be typed. Exits unless it is confirmed."""
    due = [each for each in changes if each.action is Action.DELETE and each.is_due(prune=prune)]
    due += [each for each in changes if each.action is Action.UPDATE and prune and any(
        one.needs_prune for one in each.fields)]  # fmt: skip
    if not due or yes:
        return
    if not is_terminal(sys.stdin):
        stop(f"--prune removes {', '.join(map(title_of, due))}; confirm that with --yes")
    for each in due:
        if each.kind == "database" and each.action is Action.DELETE:
            typed = typer.prompt(f"Type {plain(each.name)} to delete this database with its data", err=True)
            if typed != each.name:
                stop("the name differs; nothing was changed")
    if not typer.confirm(f"Remove {len(due)} of the above?", err=True):
        stop("nothing was changed")
