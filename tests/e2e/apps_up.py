"""`moorage up`, with addresses of this machine linked to projects by name: what a managed database does.

It starts the same processes with the same settings; the control process alone begins here, so that it knows of the
links before it starts any app. `LINKED` says which: `{"project": "address:port"}`.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from moorage.cli import main as cli
from moorage.core.db.tx import Tx
from moorage.core.env import Env
from moorage.platform import control, opening, plan
from moorage.products.apps import launching
from moorage.products.projects import service as projects
from moorage.runtime.engines.ports import Address, Egress
from moorage.settings import Settings

CONTROL = "control"
LINKED = "LINKED"

_make = plan.make
_make_env = opening.make_env


def linked(tx: Tx, org_id: int, project_id: int) -> list[Egress]:
    links: dict[str, str] = json.loads(os.environ[LINKED])
    found = links.get(projects.get_by_id(tx, org_id, project_id).name)
    if not found:
        return []
    host, _, port = found.rpartition(":")
    return [Egress("linked", Address(int(port), host))]


def with_hook(settings: Settings) -> Env:
    env = _make_env(settings)
    env.hooks.add(launching.EGRESS, "linked", linked)
    return env


def with_links(settings: Settings) -> dict[str, Any]:
    made = _make(settings)
    first = made["children"][0]
    assert first["name"] == CONTROL
    first["argv"] = [sys.executable, "-P", __file__, CONTROL]
    first["env"] |= {LINKED: os.environ[LINKED]}
    return made


if sys.argv[1:] == [CONTROL]:
    opening.make_env = with_hook
    control.main()
else:
    plan.make = with_links
    cli.main()
