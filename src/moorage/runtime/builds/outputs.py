"""Check the result of a build before it goes live: a wrong guess fails with a sentence."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from moorage.runtime.builds.collect import is_source
from moorage.runtime.builds.detection import detect
from moorage.runtime.builds.detection.reading import Folder, is_outside
from moorage.runtime.builds.detection.table import node, node_starts
from moorage.runtime.builds.detection.table.sites import INDEX
from moorage.runtime.builds.ports import DEFAULT_DIR, BuildFailed, BuildRequest, Plan

# Usual output folders, in the order of the search.
OUTPUTS = ("dist", "build", "out", "_site", "public", "www", "output", "docs")
FALLBACK = "200.html"  # page of single-page apps, under another name
MAX_DEPTH = 3  # folders below the output in which the index page is searched
MAX_LISTED = 12
Say = Callable[[str], None]


def is_guess(request: BuildRequest) -> bool:
    """Return whether the platform chose the published folder: the user set neither it nor a command for a site."""
    return request.is_default_build or (request.wanted == "auto" and _is_default_dir(request))


def _is_default_dir(request: BuildRequest) -> bool:
    return request.is_default_build or request.build_dir.strip() in ("", DEFAULT_DIR)


def find(request: BuildRequest, folder: Folder, plan: Plan, before: set[str], say: Say) -> str:
    """Return the folder to publish; raises BuildFailed where the guessed one has no index page."""
    output = _output_dir(request, folder, plan, before, say)
    if is_outside(folder.root, folder.path / output):  # Its names are not for the log.
        raise BuildFailed(f"buildDir {output!r} is a link that leads out of the repository")
    if not is_guess(request) or folder.has(_join(output, INDEX)):
        return output
    if folder.has(_join(output, FALLBACK)):
        os.rename(folder.path / output / FALLBACK, folder.path / output / INDEX)
        say(f"{_shown(output)} has no {INDEX}: {FALLBACK} is published as {INDEX}")
        return output
    inner = _indexes(folder, output) if output else []
    if len(inner) == 1:
        say(f"{output} has no {INDEX}; {inner[0]}, the only folder in it that has one, is published")
        return inner[0]
    if not inner and _is_used(folder, output):
        say(f"{output} has no {INDEX}; the base folder, whose {INDEX} uses it, is published")
        return ""
    is_plain = not plan.build and not any(is_source(name) for name in os.listdir(folder.path / output))
    if request.wanted == "static" and is_plain:
        return output
    raise BuildFailed(_no_index(folder, output, inner, is_built=bool(plan.build)))


def _is_used(folder: Folder, output: str) -> bool:
    """Return whether the page in the base folder loads files of the output: that of a library shows it."""
    page = folder.find_text(INDEX) if output else None
    return page is not None and re.search(rf"(?:src|href)=[\"']?(?:\./|/)?{re.escape(output)}/", page) is not None


def check_start(request: BuildRequest, folder: Folder, plan: Plan) -> None:
    """Raise BuildFailed where the detected start command runs a file that does not exist after the build."""
    is_chosen = request.start_cmd.strip() or request.entry_point.strip()
    if not is_chosen and (loop := node_starts.loop(folder, plan.start)):
        raise BuildFailed(f"the scripts {loop} of package.json run each other: let one of them start the server")
    file = "" if is_chosen or plan.language != "nodejs" else node_starts.started_file(folder, plan.start)
    is_made_later = "prestart" in folder.scripts or "build" in folder.scripts.get("start", "")
    if not file or is_made_later or node_starts.is_there(folder, file) or not ("/" in file or "." in file):
        return
    when = f"after `{plan.build}`" if plan.build else "and nothing is built"
    fix = "its `build` script should create it" if "build" in folder.scripts else "add a `build` script that creates it"
    raise BuildFailed(
        f"the start command `{plan.start}` of package.json runs {file}, which does not exist {when}: {fix}, or "
        "set startCmd"
    )


def _output_dir(request: BuildRequest, folder: Folder, plan: Plan, before: set[str], say: Say) -> str:
    """Return the output folder; by default also another one that the build created."""
    expected = plan.output_dir
    if os.path.isdir(folder.path / expected):
        return expected
    created = [name for name in OUTPUTS if name not in before and folder.has_folder(name)] or [
        name for name in folder.names() if name not in before and name[0] != "." and folder.has(f"{name}/{INDEX}")
    ]
    if plan.build and _is_default_dir(request):
        if len(created) == 1:
            say(f"there is no folder {expected}; the build has made {created[0]}, which is published")
            return created[0]
        page = next((each for each in ("", *OUTPUTS) if folder.has(_join(each, INDEX))), None)
        if not created and plan.framework == node.SITE and page is not None:
            say(f"the build has made no folder: {_shown(page)}, which has {INDEX}, is published")
            return page
    when = "after the build " if plan.build else ""
    fix = f"; set buildDir to the folder with {INDEX}" if _is_default_dir(request) else ""
    raise BuildFailed(f"{when}there is no folder {expected} (buildDir); {detect.listed(request, folder.base)}{fix}")


def _indexes(folder: Folder, output: str) -> list[str]:
    """Return the uppermost folders below the output that have an index page."""
    level = [output]
    for _ in range(MAX_DEPTH):
        level = [inner for each in level for inner in folder.folders(each)]
        if indexes := [each for each in level if folder.has(f"{each}/{INDEX}")]:
            return indexes
    return []


def _no_index(folder: Folder, output: str, inner: list[str], *, is_built: bool) -> str:
    names = sorted(os.listdir(folder.path / output))
    shown = ", ".join(names[:MAX_LISTED]) + (f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else "")
    where = f", and there are {', '.join(f'{each}/{INDEX}' for each in inner[:5])}" if inner else ""
    when = " after the build" if is_built else ""
    return (
        f"{_shown(output)} has no {INDEX}{when}, so it is not published (it has: {shown or 'nothing'}{where}): set "
        "buildDir to the folder with the site, or startCmd if this is an app"
    )


def _join(output: str, name: str) -> str:
    return f"{output}/{name}".lstrip("/")


def _shown(output: str) -> str:
    return f"the folder {output}" if output else "the base folder"
