"""`moorage init` and `moorage schema`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from moorage.cli.help import single
from moorage.cli.manifest import writing
from moorage.cli.manifest.commands import find, refuse
from moorage.cli.manifest.reading import FILE_NAME, ManifestError
from moorage.cli.manifest.schema import text as schema_text
from moorage.cli.manifest.writing import Draft
from moorage.cli.output.terminal import note, plain, say, stop
from moorage.cli.session import connect

app = single()


@app.command("init")
def _init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write the file to.")] = Path(),
    name: Annotated[str | None, typer.Option("--name", help="Name of the project; default: the folder's.")] = None,
    source: Annotated[
        str | None, typer.Option("--from", metavar="NAME", help="Take the settings of this project of the platform.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Change an existing file; its comments and other keys stay.")
    ] = False,
) -> None:
    """Write moorage.toml for a folder.

    Without --from the file has the name and, as comments, the settings that the files of the folder lead to; no
    platform is needed. A schema for editors is written beside it.

    Examples: `moorage init`, `moorage init site/ --name shop`, `moorage init --from shop`.
    """
    if not folder.is_dir():
        stop(f"{folder} is not a folder")
    if (folder / FILE_NAME).exists() and not force:
        stop(f"{folder / FILE_NAME} exists; change it with --force")
    find(folder)  # exits where the existing file is wrong
    if source is not None:
        from moorage.cli.manifest.exporting import export

        draft, notes = export(connect.client(), source)
    else:
        draft, notes = detected(folder, name), []
    for text in notes:
        note(plain(text))
    save(folder, draft)


def save(folder: Path, draft: Draft, *, is_quiet: bool = False) -> None:
    """Write the file, and name it on standard output; exits where the result would be wrong."""
    try:
        path = writing.write(folder, draft)
    except ManifestError as error:
        refuse(error)
    if not is_quiet:
        say(f"wrote {plain(path)}")


def detected(folder: Path, name: str | None) -> Draft:
    """Return the settings of a folder: its name, and as comments the settings that a deployment would detect."""
    from moorage.runtime.builds.detection import detect
    from moorage.runtime.builds.ports import BuildFailed, request_of_folder

    draft = Draft({"name": name or writing.project_name(folder.resolve().name)})
    request = request_of_folder(folder)
    try:
        plan = detect.decide(request, detect.open_base(request)).plan
    except BuildFailed as error:
        note(f"{plain(error)}; set the commands in {FILE_NAME}")
        return draft
    settings = {"kind": plan.kind, "build-cmd": plan.build, "build-dir": plan.output_dir, "start-cmd": plan.start}
    draft.hints = [f"D{detect.describe(plan)[0][1:]}. A key without `#` overrides what is found out:"]
    draft.hints += [f'{key} = "{value}"' for key, value in settings.items() if value and '"' not in value]
    return draft


@app.command("schema")
def _schema() -> None:
    """Print the JSON Schema of moorage.toml, for editors.

    `moorage init` writes it beside the file, which names it in its first line; after an upgrade, write it again.

    Examples: `moorage schema > .moorage.schema.json`.
    """
    sys.stdout.write(schema_text())
