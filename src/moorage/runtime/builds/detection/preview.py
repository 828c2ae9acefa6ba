"""Detect the build plan of a checked-out repository in a separate process.

`HeavyWork` runs `preview` and `plan`, because they parse files of users. In the control process, a file for which a
regular expression takes hours would stop everything: it keeps the interpreter lock. Arguments and results are JSON.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
from pathlib import Path
from typing import Any, get_args

import msgspec

from moorage.core.kit.decoding import convert, decode
from moorage.errors import Internal
from moorage.runtime.builds.detection import detect
from moorage.runtime.builds.detection.reading import Folder
from moorage.runtime.builds.ports import BuildFailed, BuildRequest, Plan, Wanted, request_of_folder
from moorage.runtime.sandbox.heavy import HeavyWork, Refused

PLAN = f"{__name__}:plan"
TIMEOUT_S = 60.0

_FIX = "one of its files is too large or too complex to be read, or the machine is overloaded; deploy again"
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


async def plan_of(work: HeavyWork, request: BuildRequest) -> tuple[Folder, Plan]:
    """Return the base folder and the plan of a build; raises BuildFailed, also after a minute."""
    text = msgspec.json.encode(request, enc_hook=os.fspath).decode()
    try:
        async with asyncio.timeout(TIMEOUT_S):
            answer = await work.run(request.image.org_id, PLAN, text)
    except Refused as error:
        raise BuildFailed(str(error)) from None
    except TimeoutError:
        raise BuildFailed(f"what this project is could not be detected within {TIMEOUT_S:.0f} s: {_FIX}") from None
    except (Internal, ValueError):  # The process ended, or its answer is too long.
        raise BuildFailed(f"what this project is could not be detected: {_FIX}") from None
    return Folder(request.source, answer["base"]), convert(answer["plan"], Plan, strict=False)


def plan(text: str) -> dict[str, Any]:
    """Return the base folder and the plan of a request. Raises Refused."""
    request = decode(text, BuildRequest)
    # Without the interpreter lock, this process cannot see that the platform was killed: a thread in C ends it.
    with open(os.devnull, "w") as nowhere:
        faulthandler.dump_traceback_later(2 * TIMEOUT_S, exit=True, file=nowhere)
        try:
            folder = detect.open_base(request)
            return {"base": folder.base, "plan": msgspec.to_builtins(detect.make_plan(request, folder))}
        except BuildFailed as error:
            raise Refused(str(error)) from None
        finally:
            faulthandler.cancel_dump_traceback_later()
