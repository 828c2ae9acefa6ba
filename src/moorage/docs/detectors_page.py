"""The page of the table of detectors."""

from __future__ import annotations

from moorage.docs.markdown import code, table
from moorage.docs.markdown import page as join
from moorage.runtime.builds.detection.table import ROWS
from moorage.runtime.builds.detection.table.row import Row, Value


def page() -> str:
    """Return the page: every row in order of precedence."""
    rows = [(str(number), row.name, row.sign.words, *_result(row)) for number, row in enumerate(ROWS, 1)]
    return join(
        "# Detectors",
        "The first row that matches decides, unless a setting of the project does: `slug`, `language`, `buildCmd`, "
        "`buildDir`, `startCmd`, `entryPoint`, or a `Procfile`. A row for an app that finds no start command does not "
        "match. `moorage detect DIR` explains the decision for a folder.",
        "A script of `package.json` comes before the command of its tool. *By its files* is a command or a folder that "
        "depends on the project.",
        table(("", "Project", "Recognised by", "Becomes", "Build", "Publish or start"), rows),
    )


def _result(row: Row) -> tuple[str, str, str]:
    if row.refusal:
        return "refused, with the way out", "", ""
    scripts = ", ".join(f"`{name}` script" for name in row.scripts)
    build = " or ".join(part for part in (scripts, _shown(row.build)) if part)
    return ("static site" if row.kind == "static" else "app"), build, _shown(row.output or row.start)


def _shown(value: Value) -> str:
    if not isinstance(value, str):
        return "by its files"
    return code(value) if value else ""
