"""`moorage functions env` and `moorage functions secrets`: variables of a function."""

from __future__ import annotations

from typing import Annotated

import typer

from moorage.cli.help import group
from moorage.cli.output.asking import YesOption, confirm, read_secret
from moorage.cli.output.tables import Column, JsonOption, show_json, show_list
from moorage.cli.output.terminal import note, plain, say_value, stop
from moorage.cli.resources.functions.deploying import WAIT_S
from moorage.cli.resources.functions.folders import variables_of
from moorage.cli.session import connect
from moorage.cli.session.names import FunctionArgument
from moorage.client.models import FunctionEnvVar, FunctionSecretUpsert

env_app = group("Variables of a function.")
secrets_app = group("Secrets of a function; their values are never listed.")

Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Names of variables.")]
SecretName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the secret.")]


@env_app.command("list")
def list_env(name: FunctionArgument, as_json: JsonOption = False) -> None:
    """List the variables of a function.

    Examples: `moorage functions env list hello`.
    """
    columns = [Column("NAME", lambda row: row.name), Column("VALUE", lambda row: row.value)]
    rows = connect.client().functions.read(name).env
    empty = f"{name} has no variables; set one with `moorage functions env set {name} NAME=value`."
    show_list(rows, columns, as_json=as_json, empty=empty)


@env_app.command("set")
def set_env(
    name: FunctionArgument,
    pairs: Annotated[list[str], typer.Argument(metavar="K=V...", help="Variables to set.")],
) -> None:
    """Set variables of a function, for calls that start from now on; the others stay.

    Examples: `moorage functions env set hello MODE=fast REGION=eu`.
    """
    client = connect.client()
    changes = variables_of(pairs)
    merged = {each.name: each.value for each in client.functions.read(name).env} | changes
    _replace_env(name, merged)
    note(f"set {', '.join(map(plain, changes))} of {name}")


@env_app.command("unset")
def unset_env(name: FunctionArgument, names: Names) -> None:
    """Remove variables of a function.

    Examples: `moorage functions env unset hello MODE`.
    """
    known = {each.name: each.value for each in connect.client().functions.read(name).env}
    if unknown := [each for each in names if each not in known]:
        stop(f"{name} has no variable {', '.join(map(plain, unknown))}")
    _replace_env(name, {key: value for key, value in known.items() if key not in names})
    note(f"removed {', '.join(map(plain, names))} of {name}")


def _replace_env(name: str, variables: dict[str, str]) -> None:
    env = [FunctionEnvVar(name=key, value=value) for key, value in variables.items()]
    connect.client().functions.update(name, env=env, wait=WAIT_S)


@secrets_app.command("list")
def list_secrets(name: FunctionArgument, as_json: JsonOption = False) -> None:
    """List the names of a function's secrets.

    Examples: `moorage functions secrets list hello`.
    """
    rows = connect.client().functions.list_secrets(name)
    empty = f"{name} has no secrets; set one with `moorage functions secrets set {name} NAME`."
    show_list(rows, [Column("NAME", lambda row: row.name)], as_json=as_json, empty=empty)


@secrets_app.command("set")
def set_secret(name: FunctionArgument, secret: SecretName) -> None:
    """Set a secret of a function; its value is asked for, or read from standard input.

    Examples: `moorage functions secrets set hello API_KEY`, `moorage functions secrets set hello API_KEY < key-file`.
    """
    client = connect.client()
    kept = [each.name for each in client.functions.list_secrets(name) if each.name != secret]
    value = read_secret(secret)
    _replace_secrets(name, [*(FunctionSecretUpsert(name=each) for each in kept), _secret(secret, value)])
    note(f"set the secret {plain(secret)} of {name}")


def _secret(name: str, value: str) -> FunctionSecretUpsert:
    return FunctionSecretUpsert(name=name, value=value)


@secrets_app.command("unset")
def unset_secret(name: FunctionArgument, secret: SecretName, yes: YesOption = False) -> None:
    """Remove a secret of a function; its value cannot be brought back.

    Examples: `moorage functions secrets unset hello API_KEY`.
    """
    known = [each.name for each in connect.client().functions.list_secrets(name)]
    if secret not in known:
        stop(f"{name} has no secret {plain(secret)}")
    confirm(f"Remove the secret {plain(secret)} of {name}?", is_confirmed=yes)
    _replace_secrets(name, [FunctionSecretUpsert(name=each) for each in known if each != secret])
    note(f"removed the secret {plain(secret)} of {name}")


def _replace_secrets(name: str, secrets: list[FunctionSecretUpsert]) -> None:
    connect.client().functions.update(name, secrets=secrets, wait=WAIT_S)


@secrets_app.command("reveal")
def reveal_secret(name: FunctionArgument, secret: SecretName, as_json: JsonOption = False) -> None:
    """Print the value of a secret. The activity feed records who did.

    Examples: `moorage functions secrets reveal hello API_KEY`.
    """
    revealed = connect.client().functions.reveal_secret(name, name=secret)
    if as_json:
        show_json(revealed)
    else:
        say_value(f"{revealed.value}\n")
