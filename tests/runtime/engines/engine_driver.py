"""A minimal control process: `python engine_driver.py RUN_FOLDER`, controlled by lines of JSON.

Tests kill it and start another one, to check that replicas outlive it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from moorage.runtime.engines import wire
from moorage.runtime.engines.local import LocalReplicas
from moorage.runtime.engines.ports import CannotStart


async def answer(replicas: LocalReplicas, asked: dict[str, Any], changes: list[str]) -> Any:
    match asked.pop("do"):
        case "start":
            try:
                return asdict(await replicas.start(wire.read_spec(json.dumps(asked["spec"]).encode())))
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
