"""Differences as text: `+` for new, `~` for changed, `-` for removed, in colour on a terminal; or as JSON."""

from __future__ import annotations

import sys
from typing import Any

from moorage.cli.manifest.changes import Action, Change, is_difference
from moorage.cli.output.tables import show_json
from moorage.cli.output.terminal import note, plain, say

SIGNS = {Action.CREATE: ("+", "green"), Action.UPDATE: ("~", "yellow"), Action.DELETE: ("-", "red")}
PRUNE_NOTE = "only with --prune"


def show(changes: list[Change], *, as_json: bool = False, prune: bool = False) -> None:
    """Print the differences on standard output; resources without one are left out."""
    if as_json:
        show_json([as_data(each) for each in changes])
        return
    shown = [each for each in changes if is_difference(each)]
    if not shown:
        say("no difference between moorage.toml and the platform")
        return
    for each in shown:
        _show_change(each, prune=prune)
    _show_summary(shown, prune=prune)


def as_data(change: Change) -> dict[str, Any]:
    """Return a change for --json."""
    fields = [
        {
            "key": each.key,
            "before": each.before,
            "after": each.after,
            "needsPrune": each.needs_prune,
            "problem": each.problem or None,
        }
        for each in change.fields
    ]
    return {
        "kind": change.kind,
        "name": change.name,
        "parent": change.parent,
        "action": change.action,
        "needsPrune": change.needs_prune,
        "problem": change.problem or None,
        "where": change.where,
        "fields": fields,
    }


def title_of(change: Change) -> str:
    """Return a resource in words: `database shop-db`, `alert status warning of monitor web`."""
    of = f" of monitor {change.parent}" if change.parent else ""
    return plain(f"{change.kind} {change.name}{of}")


def _show_change(change: Change, *, prune: bool) -> None:
    if change.kind == "secret":
        say(f"! {plain(change.problem)}", "yellow")
        return
    sign, colour = SIGNS[change.action]
    is_kept = change.needs_prune and not prune
    say(f"{sign} {title_of(change)}{f'  ({PRUNE_NOTE})' if is_kept else ''}", *(("dim",) if is_kept else (colour,)))
    if change.action is Action.DELETE:
        return
    width = max((len(each.key) for each in change.fields), default=0)
    for each in change.fields:
        before, after = (_text(value) for value in (each.before, each.after))
        name = plain(each.key).ljust(width)
        if each.needs_prune:
            say(f"    - {name}  {before}{'' if prune else f'  ({PRUNE_NOTE})'}", "red" if prune else "dim")
        elif each.before is None:
            say(f"    + {name}  {after}", "green")
        else:
            say(f"    ~ {name}  {before} → {after}", "yellow")
        if each.problem:
            say(f"      ! {plain(each.problem)}", "red")


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return plain(", ".join(map(str, value)))
    return plain(value) if value != "" else '""'


def _show_summary(shown: list[Change], *, prune: bool) -> None:
    counts = dict.fromkeys(SIGNS, 0)
    for each in shown:
        if each.is_due(prune=prune):
            counts[each.action] += 1
    kept = sum(1 for each in shown if each.needs_prune and not prune)
    kept += sum(1 for each in shown for one in each.fields if one.needs_prune and not prune and not each.needs_prune)
    words = {Action.CREATE: "to create", Action.UPDATE: "to change", Action.DELETE: "to delete"}
    text = ", ".join(f"{counts[action]} {words[action]}" for action in SIGNS)
    sys.stdout.flush()
    note(f"{text}{f', {kept} kept without --prune' if kept else ''}")
