"""The folder of a function: its name, its language and its variables, from arguments or from its files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from moorage.cli.output.terminal import stop
from moorage.products.functions.contents import BadPackage, find_language
from moorage.runtime.workers.runtimes import MAIN_FILES

FolderArgument = Annotated[
    Path, typer.Argument(metavar="[DIR]", help="Folder with the code.", exists=True, file_okay=False, resolve_path=True)
]
NameOption = Annotated[str | None, typer.Option("--name", help="Name of the function; default: the folder's name.")]
RuntimeOption = Annotated[
    str | None, typer.Option("--runtime", help="nodejs or python, with or without a version; default: by the files.")
]
EnvOption = Annotated[list[str] | None, typer.Option("--env", "-e", metavar="K=V", help="A variable; repeatable.")]
RawOption = Annotated[
    bool | None, typer.Option("--raw-http/--no-raw-http", help="Pass the body and the query unparsed.")
]
HandleOption = Annotated[
    bool | None, typer.Option("--handle-options/--no-handle-options", help="Call the function for OPTIONS requests.")
]

MAX_NAME = 63


def name_of(folder: Path, given: str | None) -> str:
    """Return the given name, or one made of the folder's name."""
    if given is not None:
        return given
    name = re.sub(r"[^a-z0-9]+", "-", folder.name.lower()).strip("-")[:MAX_NAME].strip("-")
    if not name:
        stop(f"no name can be made of the folder {folder}; give one with --name")
    return name


def runtime_of(folder: Path, given: str | None) -> str:
    """Return the given runtime, or the language of the main file."""
    if given is not None:
        return given
    try:
        language = find_language(folder)
    except BadPackage as error:
        stop(f"the folder {folder} {error}")
    if language is None:
        names = ", ".join(name for names in MAIN_FILES.values() for name in names)
        stop(f"{folder} has no main file of a function ({names}); `moorage functions new NAME` writes one")
    return language


def variables_of(pairs: list[str] | None, option: str = "--env") -> dict[str, str]:
    """Return the variables of `--env K=V`, or of another option."""
    variables = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            stop(f"{option} {pair} should be NAME=value")
        variables[name] = value
    return variables
