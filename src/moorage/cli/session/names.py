"""Arguments that name a resource: they complete in the shell, and a wrong name gets a suggestion.

`ProjectArgument` and the others remember the given name. When the API answers that something does not exist,
`suggestions` compares the remembered names with those that exist.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Annotated, Any, Final

import typer

from moorage.cli.session import completion

GROUPS: Final = {"schedule": "schedules", "monitor": "monitors", "organization": "orgs"}  # where not kind + "s"

_given: dict[str, str] = {}  # kind: name


def remember(kind: str) -> Callable[[str | None], str | None]:
    """Return a callback of an argument that keeps its value for `suggestions`."""

    def keep(value: str | None) -> str | None:
        if value is not None:
            _given[kind] = value
        return value

    return keep


def argument(kind: str, text: str = "") -> Any:
    """Return the Typer argument for the name of a resource: project, function, database, …"""
    return typer.Argument(
        help=text or f"Name of the {kind}.", autocompletion=completion.of(kind), callback=remember(kind)
    )


ProjectArgument = Annotated[str, argument("project")]
FunctionArgument = Annotated[str, argument("function")]
DatabaseArgument = Annotated[str, argument("database")]
CronjobArgument = Annotated[str, argument("cronjob")]


def suggestions() -> list[str]:
    """Return a sentence for each given name that does not exist: the closest name, or the command that lists them."""
    from moorage.cli.session import connect
    from moorage.client import ClientError
    from moorage.client.exchange import Call

    lines = []
    for kind, name in _given.items():
        path, field = completion.LISTS[kind]
        try:
            known = completion.names_in(connect.client().transport.call(Call("GET", path), Any), field)
        except ClientError:
            continue
        if name in known:
            continue
        near = get_close_matches(name, known, n=1)
        group = GROUPS.get(kind, f"{kind}s")
        lines.append(f"did you mean {near[0]}?" if near else f"`moorage {group} list` shows the {kind}s that exist")
    return lines
