"""`moorage up`, and its single processes: `serve`, `work`, `edge`, `gateway`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any, get_args

import typer

from moorage import settings as settings_module
from moorage.cli.help import single
from moorage.core.validated import FieldInfo, SecretStr
from moorage.settings import Settings

app = single()

_TYPES = {bool: "<bool>", int: "<int>", float: "<number>", Path: "<path>", SecretStr: "<secret>", str: "<text>"}


def _up(settings: Settings) -> None:
    """Start the whole platform in the foreground; Ctrl-C stops it."""
    from moorage.platform import plan

    plan.execute(plan.make(settings))


def _serve(settings: Settings) -> None:
    """Start an API process without workers (several may run on one PostgreSQL)."""
    from moorage.platform import control

    control.run(settings, works=False)


def _work(settings: Settings) -> None:
    """Start a worker process without the API (several may run on one PostgreSQL)."""
    from moorage.platform import control

    control.run(settings, serves=False)


def _edge(settings: Settings) -> None:
    """Start an edge with its function workers (several may run on one PostgreSQL, each on its own machine)."""
    from moorage.platform import plan

    plan.execute(plan.make_edge(settings))


def _gateway(settings: Settings) -> None:
    """Start a public gateway for apps that run as pods (several may run on one PostgreSQL)."""
    from moorage.platform import plan

    plan.execute(plan.make_gateway(settings))


def with_settings(command: Callable[[Settings], None]) -> Callable[..., None]:
    """Give a command a flag for every setting; a flag overrides its variable."""

    def run(**flags: Any) -> None:
        values = {name: value for name, value in flags.items() if value is not None}
        command(settings_module.load(**values))

    parameters = [_flag(name, field) for name, field in Settings.model_fields.items()]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _flag(name: str, field: FieldInfo) -> inspect.Parameter:
    default = default_text(field)
    text = f"{field.description or ''} [MOORAGE_{name.upper()}{f'; default: {default}' if default else ''}]"
    option = typer.Option(None, f"--{name.replace('_', '-')}", help=text, metavar=type_text(field), show_default=False)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=str | None)


def type_text(field: FieldInfo) -> str:
    """Return the type of a setting as a placeholder: `<int>`, or the values of an enum."""
    kinds = [kind for kind in (field.annotation, *get_args(field.annotation)) if isinstance(kind, type)]
    for kind in kinds:
        if issubclass(kind, StrEnum):
            return f"<{'|'.join(kind)}>"
    if getattr(field.annotation, "__origin__", None) is tuple:
        return "<list>"
    return next((_TYPES[kind] for kind in kinds if kind in _TYPES), "<text>")


def default_text(field: FieldInfo) -> str:
    """Return the default of a setting; empty where the description says how it is chosen."""
    value = field.default
    if isinstance(value, SecretStr) or value in (None, "", ()):
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


for _run in (_up, _serve, _work, _edge, _gateway):
    app.command(_run.__name__.removeprefix("_"), help=_run.__doc__)(with_settings(_run))
