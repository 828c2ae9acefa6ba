"""Detect the build plan of a checked-out repository in a separate process, without a build.

`HeavyWork` runs `preview`: it parses files of users. Arguments and results are sent as JSON.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from moorage.runtime.builds.detection import detect
from moorage.runtime.builds.ports import BuildFailed, Wanted, request_of_folder

_COMMANDS = ("language", "framework", "install", "build", "start")
_NO_PLAN: dict[str, Any] = {
    "kind": None,
    **dict.fromkeys((*_COMMANDS, "output_dir", "base_dir"), ""),
    "notes": [],
    "reasons": [],
}


def preview(folder: str, kind: str, base_dir: str, start_cmd: str) -> dict[str, Any]:
    """Return the plan that `moorage detect` prints, or `problem` where the folder cannot be deployed."""
    wanted: Wanted = next(each for each in get_args(Wanted) if each == kind)
    request = request_of_folder(Path(folder), wanted=wanted, base_dir=base_dir, start_cmd=start_cmd)
    try:
        base = detect.open_base(request)
        decision = detect.decide(request, base)
    except BuildFailed as error:
        return {**_NO_PLAN, "problem": str(error)}
    plan = decision.plan
    return {
        "kind": plan.kind,
        **{name: getattr(plan, name) for name in _COMMANDS},
        "output_dir": plan.output_dir if plan.kind == "static" else "",
        "base_dir": base.base,
        "notes": list(plan.notes),
        "reasons": detect.explain(decision, base),
        "problem": None,
    }
