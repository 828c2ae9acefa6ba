"""`moorage env` and `moorage secrets`: variables of a project, readable and secret ones."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from moorage.cli.help import GroupedCommands
from moorage.cli.output.asking import YesOption, confirm, read_secret
from moorage.cli.output.tables import Column, JsonOption, show_list
from moorage.cli.output.terminal import note, plain, say, say_value, stop
from moorage.cli.resources.projects import dotenv, following
from moorage.cli.session import completion, connect
from moorage.cli.session.names import ProjectArgument
from moorage.client import models

app = typer.Typer(add_completion=False, rich_markup_mode=None)
env = typer.Typer(cls=GroupedCommands, no_args_is_help=True, help="Environment variables of a project.")
secrets = typer.Typer(cls=GroupedCommands, no_args_is_help=True, help="Secrets of a project.")
app.add_typer(env, name="env")
app.add_typer(secrets, name="secrets")

FILE_MODE = 0o600
EnvFile = Annotated[Path, typer.Argument(metavar="FILE", help="File of NAME=VALUE lines; `-` is standard input.")]
SecretNames = Annotated[
    list[str],
    typer.Argument(metavar="SECRET", help="Names.", autocompletion=completion.of_project("secrets", "name")),
]


@env.command("list")
def list_env(name: ProjectArgument, as_json: JsonOption = False) -> None:
    """List the variables of a project with their values.

    Example: `moorage env list shop`.
    """
    columns = [Column("NAME", lambda row: row.name), Column("VALUE", lambda row: row.value)]
    empty = f"There are no variables; set one with `moorage env set {name} NAME=VALUE`."
    show_list(connect.client().projects.read(name).env, columns, as_json=as_json, empty=empty)


@env.command("set")
def set_env(
    name: ProjectArgument,
    values: Annotated[list[str], typer.Argument(metavar="NAME=VALUE", help="Variables to set.")],
    wait: following.WaitOption = True,
    as_json: JsonOption = False,
) -> None:
    """Set variables of a project; the others stay. An app is deployed again.

    Put passwords and keys into `moorage secrets set`: variables are readable.

    Examples: `moorage env set shop THEME=dark`, `moorage env set api LOG_LEVEL=debug WORKERS=4 --no-wait`.
    """
    given = dict(_assignment(text) for text in values)
    _change_env(name, {**_current_env(name), **given}, wait=wait, as_json=as_json)


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not dotenv.NAME.fullmatch(name):
        stop(f"{plain(name)}: expected NAME=VALUE, with letters, digits and underscores in the name", 2)
    return name, value


def _current_env(name: str) -> dict[str, str]:
    return {each.name: each.value for each in connect.client().projects.read(name).env}


def _change_env(name: str, variables: dict[str, str], *, wait: bool, as_json: bool) -> None:
    rows = [models.EnvVar(name=key, value=value) for key, value in variables.items()]
    following.finish_update(connect.client().projects.update(name, env=rows), wait=wait, as_json=as_json)


@env.command("unset")
def unset_env(
    name: ProjectArgument,
    names: Annotated[list[str], typer.Argument(metavar="VARIABLE", help="Names of the variables.")],
    wait: following.WaitOption = True,
    as_json: JsonOption = False,
) -> None:
    """Remove variables of a project. An app is deployed again.

    Example: `moorage env unset shop THEME`.
    """
    current = _current_env(name)
    _check_known(names, list(current), "variable")
    kept = {key: value for key, value in current.items() if key not in names}
    _change_env(name, kept, wait=wait, as_json=as_json)


def _check_known(names: list[str], known: list[str], what: str) -> None:
    from difflib import get_close_matches

    for each in names:
        if each not in known:
            near = get_close_matches(each, known, n=1)
            stop(f"there is no {what} {plain(each)}" + (f"; did you mean {plain(near[0])}?" if near else ""))


@env.command("pull")
def pull_env(
    name: ProjectArgument,
    file: EnvFile = Path(".env"),
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write the variables of a project to a file that only you can read.

    Secrets are not part of it. `-` writes to standard output.

    Examples: `moorage env pull shop`, `moorage env pull shop .env.production --force`.
    """
    variables = _current_env(name)
    text = dotenv.render(variables)
    if str(file) == "-":
        say_value(text)
        return
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if force else os.O_EXCL)
    try:
        with os.fdopen(os.open(file, flags, FILE_MODE), "w", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        stop(f"{file} exists; replace it with --force")
    except OSError as error:
        stop(f"cannot write {file}: {error.strerror}")
    say(f"wrote {len(variables)} variables to {file}")


@env.command("push")
def push_env(
    name: ProjectArgument,
    file: EnvFile = Path(".env"),
    replace: Annotated[bool, typer.Option("--replace", help="Remove variables that the file does not have.")] = False,
    yes: YesOption = False,
    wait: following.WaitOption = True,
    as_json: JsonOption = False,
) -> None:
    """Set the variables of a file on a project; the others stay unless `--replace` is given.

    Examples: `moorage env push shop`, `moorage env push shop .env.production --replace`.
    """
    given, current = read_file(file), _current_env(name)
    if replace and (lost := [key for key in current if key not in given]):
        confirm(f"Remove {', '.join(map(plain, lost))} from {plain(name)}?", is_confirmed=yes)
    wanted = given if replace else {**current, **given}
    if wanted == current:
        say("nothing to change")
        return
    _change_env(name, wanted, wait=wait, as_json=as_json)


def read_file(file: Path) -> dict[str, str]:
    """Return the variables of a file, or of standard input for `-`; exits if it is not one."""
    try:
        return dotenv.parse(sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8"))
    except OSError as error:
        stop(f"cannot read {file}: {error.strerror}")
    except (dotenv.BadFile, UnicodeDecodeError) as error:
        stop(f"cannot read {file}: {error}")


@secrets.command("list")
def list_secrets(name: ProjectArgument, as_json: JsonOption = False) -> None:
    """List the names of a project's secrets.

    Example: `moorage secrets list shop`.
    """
    empty = f"There are no secrets; set one with `moorage secrets set {name} NAME`."
    rows = connect.client().projects.list_secrets(name)
    show_list(rows, [Column("NAME", lambda row: row.name)], as_json=as_json, empty=empty)


@secrets.command("set")
def set_secrets(
    name: ProjectArgument,
    names: Annotated[list[str] | None, typer.Argument(metavar="SECRET", help="Names of the secrets.")] = None,
    file: Annotated[Path | None, typer.Option("--from-file", help="File of NAME=VALUE lines; `-` reads them.")] = None,
    wait: following.WaitOption = True,
    as_json: JsonOption = False,
) -> None:
    """Set secrets of a project; the others stay. An app is deployed again.

    The value comes from a prompt that does not show it, or from standard input, never from the command line: other
    users of the machine can read that.

    Examples: `moorage secrets set shop API_KEY`, `moorage secrets set shop API_KEY < key.txt`, `moorage secrets set
    shop --from-file .env.secrets`.
    """
    wanted = names or []
    for each in wanted:
        if not dotenv.NAME.fullmatch(each):
            hint = "; leave out the value, it is asked for" if "=" in each else ""
            stop(f"{plain(each.partition('=')[0])}: expected the name of a secret{hint}", 2)
    if bool(wanted) == (file is not None):
        stop("name the secrets to set, or give a file with --from-file", 2)
    if len(wanted) > 1 and not sys.stdin.isatty():
        stop("standard input has the value of one secret; use --from-file - for several", 2)
    stored = [each.name for each in connect.client().projects.list_secrets(name)]
    values = read_file(file) if file is not None else {each: read_secret(each) for each in wanted}
    kept = [models.SecretUpsert(name=each) for each in stored if each not in values]
    rows = [*kept, *(models.SecretUpsert(name=key, value=value) for key, value in values.items())]
    following.finish_update(connect.client().projects.update(name, secrets=rows), wait=wait, as_json=as_json)


@secrets.command("unset")
def unset_secrets(
    name: ProjectArgument,
    names: SecretNames,
    yes: YesOption = False,
    wait: following.WaitOption = True,
    as_json: JsonOption = False,
) -> None:
    """Remove secrets of a project; their values cannot be restored. An app is deployed again.

    Example: `moorage secrets unset shop API_KEY`.
    """
    client = connect.client()
    stored = [each.name for each in client.projects.list_secrets(name)]
    _check_known(names, stored, "secret")
    confirm(f"Remove {', '.join(map(plain, names))} of {plain(name)}?", is_confirmed=yes)
    rows = [models.SecretUpsert(name=each) for each in stored if each not in names]
    following.finish_update(client.projects.update(name, secrets=rows), wait=wait, as_json=as_json)


@secrets.command("reveal")
def reveal_secret(
    name: ProjectArgument,
    secret: Annotated[
        str, typer.Argument(help="Name of the secret.", autocompletion=completion.of_project("secrets", "name"))
    ],
    yes: YesOption = False,
) -> None:
    """Print the value of a secret, alone, on standard output. The audit log records it.

    Example: `moorage secrets reveal shop API_KEY`.
    """
    client = connect.client()
    _check_known([secret], [each.name for each in client.projects.list_secrets(name)], "secret")
    confirm(f"Show the value of {plain(secret)}? The audit log of {plain(name)} records it.", is_confirmed=yes)
    value = client.projects.reveal_secret(name, name=secret).value
    say_value(f"{value}\n")
    if sys.stdout.isatty():
        note("clear the terminal if others can see it", "dim")
