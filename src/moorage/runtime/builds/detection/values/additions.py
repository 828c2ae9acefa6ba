"""Additions to a plan: files that have only an example, variables that the code requires, and the database server."""

from __future__ import annotations

from dataclasses import replace

from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.detection.values import (
    databases,
    examples,
    migrations,
    own_address,
    parts,
    servers,
    variables,
)
from moorage.runtime.builds.ports import BuildFailed, BuildRequest, Plan

_SQLITE_NOTE = (
    "{} is not set: the app has a SQLite file, which is lost at its next start; `moorage databases create` "
    "with --project gives it a PostgreSQL"
)


def with_examples(plan: Plan, folder: Folder) -> Plan:
    """Copy the examples of files that the code reads and the repository lacks, before the build."""
    if plan.language not in ("nodejs", "python") or not (plan.install or plan.build or plan.kind == "container"):
        return plan
    copies = examples.copies(folder)
    if not copies:
        return plan
    notes = tuple(
        f"{target} is not in the repository: {example} is used in its place; commit {target} to set its values"
        for example, target in copies.items()
    )
    build = " && ".join(filter(None, (examples.command(folder), plan.build)))
    return replace(plan, build=build, notes=(*plan.notes, *notes))


def with_variables(request: BuildRequest, plan: Plan, folder: Folder) -> Plan:
    """Set the variables that the code does not start without, by the example of the repository."""
    is_app = plan.kind == "container"
    unread = variables.unread(folder) if is_app and plan.language == "python" else {}
    needed = {**unread, **variables.required(folder, plan.language)}
    notes = []
    if is_app and plan.language == "python" and databases.NAME not in request.env:
        names = [databases.NAME] if databases.needs_url(folder) else databases.other_names(folder)
        needed |= dict.fromkeys(names, databases.SQLITE)
        notes += [_SQLITE_NOTE.format(name) for name in names]
    own = own_address.templates(folder, plan.language, needed)
    needed = {name: value for name, value in needed.items() if name not in own}
    values = tuple((name, value) for name, value in needed.items() if value)
    keys = (name for name, value in needed.items() if not value) if is_app else ()
    if shown := [name for name, value in values if value != databases.SQLITE]:
        has, them = ("have the values", "them") if len(shown) > 1 else ("has the value", "it")
        notes.append(f"{', '.join(shown)} {has} of the repository's example, unless a variable or a secret sets {them}")
    if own:
        has, them = ("have", "them") if len(own) > 1 else ("has", "it")
        notes.append(f"{', '.join(own)} {has} the address of the project, unless a variable or a secret sets {them}")
    return replace(
        plan,
        values=values,
        own_addresses=tuple(own.items()),
        keys=tuple(dict.fromkeys((*plan.keys, *keys))),
        notes=(*plan.notes, *notes),
        variables=tuple(variables.named(folder)) if is_app else (),
        addresses=variables.addresses(folder, plan.language) if is_app else (),
    )


def with_database(plan: Plan, folder: Folder) -> Plan:
    """Add the database server that an app needs, the variables with its parts, and how its tables are created."""
    if plan.kind != "container":
        return plan
    try:
        engine = servers.engine(folder)
    except BuildFailed:  # A broken manifest that the plan does not read.
        return plan
    uses_sqlite = plan.language == "python" and migrations.uses_sqlite(folder, plan.start)
    if not engine and not uses_sqlite:
        return plan
    has_sqlite = databases.SQLITE in dict(plan.values).values()
    return replace(
        plan,
        database=engine,
        needs_database=not has_sqlite and servers.needs(folder),
        has_own_database=servers.is_own(folder),
        parts=tuple(parts.templates(folder, engine).items()),
        migrate="" if plan.language == "docker" else migrations.command(folder, plan.start),
        migrates_in_build=bool(engine) and not has_sqlite and migrations.runs_in(folder, plan.build),
        uses_sqlite=uses_sqlite,
    )
