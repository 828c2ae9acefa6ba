"""`moorage import`: moorage.toml from the files of other platforms."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from moorage.cli.help import single
from moorage.cli.importing.documents import CannotImport
from moorage.cli.importing.result import Result
from moorage.cli.manifest import writing
from moorage.cli.manifest.reading import FILE_NAME, ManifestError, parse
from moorage.cli.manifest.starting import save
from moorage.cli.output.tables import JsonOption, show_json
from moorage.cli.output.terminal import note, plain, say, stop

app = single()

# File names and the module that reads them; the first one of a folder is imported.
FILES = {
    "vercel.json": "vercel",
    "netlify.toml": "netlify",
    "fly.toml": "fly",
    "render.yaml": "render",
    "render.yml": "render",
    "Procfile": "heroku",
    "app.json": "heroku",
    "compose.yaml": "compose",
    "compose.yml": "compose",
    "docker-compose.yml": "compose",
    "docker-compose.yaml": "compose",
}


@app.command("import")
def _import(
    source: Annotated[Path, typer.Argument(metavar="DIR|FILE", help="Folder, or one of its files.")] = Path(),
    service: Annotated[
        str | None,
        typer.Option("--service", help="Service of the file that becomes the project; default: the web one."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Change an existing moorage.toml.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the file and write nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write moorage.toml from the files of another platform.

    Reads docker-compose.yml, Procfile with app.json, vercel.json, netlify.toml, fly.toml and render.yaml. Lists what
    was not carried over, why, and the next step for each. Values that look like secrets are never written: their names
    are listed in `secrets`.

    Examples: `moorage import`, `moorage import render.yaml --service api`, `moorage import --dry-run`.
    """
    path = find_file(source)
    folder = path.parent
    if (folder / FILE_NAME).exists() and not force and not dry_run:
        stop(f"{folder / FILE_NAME} exists; change it with --force")
    try:
        result = run(path, folder, service)
        text = writing.new(result.draft)
        parse(text, folder / FILE_NAME)
    except CannotImport as error:
        stop(plain(error))
    except ManifestError as error:
        stop(f"{path.name} leads to a wrong {FILE_NAME}: {plain(error)}")
    if as_json:
        show_json({"file": path.name, "toml": text, "left": [msgspec.to_builtins(each) for each in result.left]})
    elif dry_run:
        for line in text.splitlines():
            say(plain(line))
    if not dry_run:
        save(folder, result.draft, is_quiet=as_json)
    _report(path, result)


def run(path: Path, folder: Path, service: str | None = None) -> Result:
    """Import one file. Raises CannotImport."""
    module = importlib.import_module(f"moorage.cli.importing.{FILES[path.name]}")
    result: Result = module.run(path, folder, service)
    return result


def find_file(source: Path) -> Path:
    """Return the file to import; exits with the known names where there is none, and names others of the folder."""
    if source.is_file() and source.name in FILES:
        return source
    known = ", ".join(FILES)
    if source.is_file():
        stop(f"{source.name} is not a file that can be imported; known: {known}")
    paths = [source / name for name in FILES if (source / name).is_file()]
    if not paths:
        stop(f"there is nothing to import in {source}; known: {known}")
    others = [each.name for each in paths[1:] if FILES[each.name] != FILES[paths[0].name]]
    if others:
        note(f"importing {paths[0].name}; also there: {', '.join(others)} (name the file to choose it)")
    return paths[0]


def _report(path: Path, result: Result) -> None:
    for each in result.left:
        note(f"! {plain(each.what)}: {plain(each.why)}", "yellow")
        note(f"    next: {plain(each.step)}")
    if secrets := result.project.get("secrets"):
        note(f"secrets to set before the first deployment: {', '.join(map(plain, secrets))}")
    count = len(result.left)
    note(f"{path.name}: everything was carried over" if not count else f"{path.name}: {count} not carried over")
