"""`moorage detect`: the build plan of a folder, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from moorage.cli.help import single
from moorage.cli.output.terminal import fail, say

Kind = Literal["auto", "static", "container"]


app = single()


@app.command("detect")
def _detect(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The checked-out repository.")],
    base_dir: Annotated[str, typer.Option("--base-dir", help="`baseDir` of the project.")] = "./",
    kind: Annotated[Kind, typer.Option("--kind", help="`slug` of the project.")] = "auto",
    start_cmd: Annotated[str, typer.Option("--start-cmd", help="`startCmd` of the project.")] = "",
) -> None:
    """Print the build plan that a deployment of a folder would have.

    The reasons for it follow. Nothing is executed, and no running platform is needed. Exits with code 1 and the
    reason if the folder cannot be deployed.
    """
    from moorage.runtime.builds.detection import detect
    from moorage.runtime.builds.ports import BuildFailed, request_of_folder

    if not folder.is_dir():
        fail(f"{folder} is not a folder")
    request = request_of_folder(folder, wanted=kind, base_dir=base_dir, start_cmd=start_cmd)
    try:
        base = detect.open_base(request)
        decision = detect.decide(request, base)
    except BuildFailed as error:
        fail(str(error))
    for line in (*detect.describe(decision.plan, ""), "", *detect.explain(decision, base)):
        say(line)
