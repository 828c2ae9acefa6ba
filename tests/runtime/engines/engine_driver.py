"""A minimal control process: `python engine_driver.py RUN_FOLDER`, controlled by lines of JSON.

Tests kill it and start another one, to check that replicas outlive it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from moorage.runtime.engines.local import LocalReplicas
from moorage.runtime.engines.local_specs import LocalFiles
from moorage.runtime.engines.ports import Address, AppSpec, CannotStart, Egress, ReplicaSpec, RunSpec, ServerSpec

KINDS: dict[str, type[ReplicaSpec]] = {"app": AppSpec, "server": ServerSpec, "run": RunSpec}


def read_spec(told: dict[str, Any]) -> ReplicaSpec:
    """Return a spec from its fields and those of its files; `doors` has the ports of its egress rules."""
    names = {each.name for each in fields(LocalFiles)}
    files = LocalFiles(**{name: value for name, value in told.items() if name in names})
    others = {name: value for name, value in told.items() if name not in names | {"kind", "doors"}}
    doors = [each.rpartition(":") for each in told.get("doors", ())]
    egress = [Egress("", Address(int(port), host)) for host, _, port in doors]
    return KINDS[told["kind"]](**others, files=files, egress=egress)


async def answer(replicas: LocalReplicas, asked: dict[str, Any], changes: list[str]) -> Any:
    match asked.pop("do"):
        case "start":
            try:
                return asdict(await replicas.start(read_spec(asked["spec"])))
            except CannotStart as error:
                return {"error": str(error)}
        case "look":
            found = await replicas.look(asked["key"])
            return found and asdict(found)
        case "states":
            return {key: asdict(state) for key, state in replicas.states().items()}
        case "stop":
            return await replicas.stop(asked["key"], asked["grace_s"])
        case "limit":
            return await replicas.limit(asked["key"], asked["cpu"])
        case "adopt":
            return await replicas.adopt(asked["tokens"])
        case "changes":
            return changes
        case "close":
            return await replicas.close()


async def main() -> None:
    loop = asyncio.get_running_loop()
    replicas, changes = LocalReplicas(Path(sys.argv[1])), list[str]()
    replicas.listen(changes.append)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(await answer(replicas, json.loads(line), changes)), flush=True)


asyncio.run(main())
