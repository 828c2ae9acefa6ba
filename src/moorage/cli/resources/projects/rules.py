"""`moorage redirects` and `moorage headers`: rules of a project, one by one or all from a file."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from moorage.cli.help import GroupedCommands
from moorage.cli.output.asking import YesOption, confirm
from moorage.cli.output.tables import Column, JsonOption, show_list
from moorage.cli.output.terminal import note, plain, say, stop
from moorage.cli.session import completion, connect
from moorage.cli.session.names import ProjectArgument
from moorage.client import models
from moorage.core.kit.decoding import convert

app = typer.Typer(add_completion=False, rich_markup_mode=None)
redirects = typer.Typer(cls=GroupedCommands, no_args_is_help=True, help="Redirects of a project.")
headers = typer.Typer(cls=GroupedCommands, no_args_is_help=True, help="Response headers of a project.")
app.add_typer(redirects, name="redirects")
app.add_typer(headers, name="headers")

STATUSES = (301, 302, 303, 307, 308)
Source = Annotated[str, typer.Argument(help="Path to match; `*` and `:name` are wildcards.")]
First = Annotated[bool, typer.Option("--first", help="Put the rule before the others: the first match applies.")]
RuleFile = Annotated[Path, typer.Argument(metavar="FILE", help="JSON or TOML file with all rules; `-` reads JSON.")]


@redirects.command("list")
def list_redirects(name: ProjectArgument, as_json: JsonOption = False) -> None:
    """List the redirects of a project, in their order.

    Examples: `moorage redirects list shop`, `moorage redirects list shop --json > redirects.json`.
    """
    _show_redirects(connect.client().rules.list_redirects(name), name, as_json=as_json)


def _show_redirects(rows: list[models.RedirectRule], name: str, *, as_json: bool) -> None:
    columns = [
        Column("SOURCE", lambda row: row.source),
        Column("DESTINATION", lambda row: row.destination),
        Column("STATUS", lambda row: row.status),
    ]
    empty = f"There are no redirects; add one with `moorage redirects add {name} /old /new`."
    show_list(rows, columns, as_json=as_json, empty=empty)


@redirects.command("add")
def add_redirect(
    name: ProjectArgument,
    source: Source,
    destination: Annotated[str, typer.Argument(help="Path or URL; wildcards of the source may stand in it.")],
    status: Annotated[int, typer.Option("--status", help="301, 302, 303, 307 or 308.")] = 302,
    first: First = False,
    as_json: JsonOption = False,
) -> None:
    """Add a redirect; one with the same source is replaced.

    Examples: `moorage redirects add shop /old /new --status 301`, `moorage redirects add shop '/blog/:slug'
    '/posts/:slug'`.
    """
    if status not in STATUSES:
        stop(f"--status {status}: expected {', '.join(map(str, STATUSES))}", 2)
    rules = connect.client().rules
    rule = models.RedirectRuleInput(source=source, destination=destination, status=status)
    kept = _redirect_inputs(rules.list_redirects(name))
    _show_redirects(rules.set_redirects(name, redirects=_with(kept, rule, _source, first)), name, as_json=as_json)


@redirects.command("remove")
def remove_redirect(
    name: ProjectArgument,
    source: Annotated[
        str,
        typer.Argument(help="Source of the redirect.", autocompletion=completion.of_project("redirects", "source")),
    ],
) -> None:
    """Remove the redirect of a source.

    Example: `moorage redirects remove shop /old`.
    """
    rules = connect.client().rules
    listed = _redirect_inputs(rules.list_redirects(name))
    kept = [each for each in listed if each.source != source]
    if len(kept) == len(listed):
        stop(f"{plain(name)} has no redirect of {plain(source)}; `moorage redirects list {plain(name)}` shows them")
    rules.set_redirects(name, redirects=kept)
    say(f"removed the redirect of {plain(source)}")


@redirects.command("set")
def set_redirects(name: ProjectArgument, file: RuleFile, yes: YesOption = False, as_json: JsonOption = False) -> None:
    """Replace all redirects of a project by those of a file.

    JSON is a list of objects with `source`, `destination` and `status`, as `moorage redirects list --json` prints.
    TOML has them in tables `[[redirects]]`.

    Examples: `moorage redirects set shop redirects.json`, `moorage redirects set shop - < redirects.json`.
    """
    rows = read_rules(file, "redirects", models.RedirectRuleInput)
    rules = connect.client().rules
    _confirm_loss(len(rules.list_redirects(name)), len(rows), "redirects", is_confirmed=yes)
    _show_redirects(rules.set_redirects(name, redirects=rows), name, as_json=as_json)


@headers.command("list")
def list_headers(name: ProjectArgument, as_json: JsonOption = False) -> None:
    """List the header rules of a project, in their order.

    Example: `moorage headers list shop`.
    """
    _show_headers(connect.client().rules.list_header(name), name, as_json=as_json)


def _show_headers(rows: list[models.HeaderRule], name: str, *, as_json: bool) -> None:
    columns = [
        Column("SOURCE", lambda row: row.source),
        Column("NAME", lambda row: row.name),
        Column("VALUE", lambda row: row.value),
    ]
    empty = f"There are no header rules; add one with `moorage headers add {name} '/*' X-Frame-Options DENY`."
    show_list(rows, columns, as_json=as_json, empty=empty)


@headers.command("add")
def add_header(
    name: ProjectArgument,
    source: Source,
    header: Annotated[str, typer.Argument(help="Name of the header.")],
    value: Annotated[str, typer.Argument(help="Value of the header.")],
    first: First = False,
    as_json: JsonOption = False,
) -> None:
    """Set a response header; a rule of the same source and header is replaced.

    Example: `moorage headers add shop '/assets/*' Cache-Control 'public, max-age=31536000'`.
    """
    rules = connect.client().rules
    rule = models.HeaderRuleInput(source=source, name=header, value=value)
    kept = _header_inputs(rules.list_header(name))
    _show_headers(rules.set_header(name, headers=_with(kept, rule, _source_and_name, first)), name, as_json=as_json)


@headers.command("remove")
def remove_header(
    name: ProjectArgument,
    source: Annotated[
        str, typer.Argument(help="Source of the rule.", autocompletion=completion.of_project("headers", "source"))
    ],
    header: Annotated[str | None, typer.Argument(help="Name of the header; default: all of the source.")] = None,
) -> None:
    """Remove header rules of a source.

    Examples: `moorage headers remove shop '/*' X-Frame-Options`, `moorage headers remove shop '/*'`.
    """
    rules = connect.client().rules
    listed = _header_inputs(rules.list_header(name))
    kept = [
        each for each in listed if each.source != source or (header is not None and each.name.lower() != header.lower())
    ]
    if len(kept) == len(listed):
        stop(f"{plain(name)} has no such rule; `moorage headers list {plain(name)}` shows them")
    rules.set_header(name, headers=kept)
    say(f"removed {len(listed) - len(kept)} rule{'s' if len(listed) - len(kept) > 1 else ''}")


@headers.command("set")
def set_headers(name: ProjectArgument, file: RuleFile, yes: YesOption = False, as_json: JsonOption = False) -> None:
    """Replace all header rules of a project by those of a file.

    JSON is a list of objects with `source`, `name` and `value`, as `moorage headers list --json` prints. TOML has them
    in tables `[[headers]]`.

    Example: `moorage headers set shop headers.json`.
    """
    rows = read_rules(file, "headers", models.HeaderRuleInput)
    rules = connect.client().rules
    _confirm_loss(len(rules.list_header(name)), len(rows), "header rules", is_confirmed=yes)
    _show_headers(rules.set_header(name, headers=rows), name, as_json=as_json)


def read_rules(file: Path, key: str, model: Any) -> list[Any]:
    """Return the rules of a JSON or TOML file; other fields, such as ids, are ignored."""
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
        document: Any = tomllib.loads(text) if file.suffix == ".toml" else msgspec.json.decode(text.encode())
        rows: list[Any] = convert(document[key] if isinstance(document, dict) else document, list[model])
    except OSError as error:
        stop(f"cannot read {file}: {error.strerror}")
    except KeyError:
        stop(f"{file} has no list {key}")
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.MsgspecError) as error:
        stop(f"{file} is not a list of {key}: {error}")
    return rows


def _confirm_loss(before: int, after: int, what: str, *, is_confirmed: bool) -> None:
    if after < before:
        confirm(f"Replace {before} {what} by {after}?", is_confirmed=is_confirmed)
    elif before:
        note(f"replacing {before} {what}", "dim")


def _redirect_inputs(rows: list[models.RedirectRule]) -> list[models.RedirectRuleInput]:
    return [
        models.RedirectRuleInput(source=each.source, destination=each.destination, status=each.status) for each in rows
    ]


def _header_inputs(rows: list[models.HeaderRule]) -> list[models.HeaderRuleInput]:
    return [models.HeaderRuleInput(source=each.source, name=each.name, value=each.value) for each in rows]


def _source(rule: Any) -> tuple[str, ...]:
    return (rule.source,)


def _source_and_name(rule: Any) -> tuple[str, ...]:
    return (rule.source, rule.name.lower())


def _with(rules: list[Any], rule: Any, key: Any, is_first: bool) -> list[Any]:
    """Return rules with one more: at the place of the rule that it replaces, else at the end or the beginning."""
    keys = [key(each) for each in rules]
    if not is_first and key(rule) in keys:
        at = keys.index(key(rule))
        return [*rules[:at], rule, *rules[at + 1 :]]
    others = [each for each in rules if key(each) != key(rule)]
    return [rule, *others] if is_first else [*others, rule]
