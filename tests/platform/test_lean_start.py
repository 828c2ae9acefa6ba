"""Each process imports only the libraries that it uses, and the control process serves before it has adopted."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.ports import free_port

from moorage.platform.control import Control
from moorage.platform.supervisor import TakenOver
from moorage.settings import Settings

NEVER = (
    "alembic",
    "rich",
    "pygments",
    "pydantic_settings",
    "psycopg",
    "obstore",
    "yara_x",
    "typer",
    "opentelemetry.sdk",
    "lightkube",
    "moorage.runtime.engines.kubernetes.client",
    "moorage.runtime.images.pushing.client",
)


def imported_by(module: str) -> set[str]:
    """Return the modules in memory after an import in a new process."""
    program = f"import sys, json, {module}; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


IDLE = """
import json, sys
from pathlib import Path
from moorage.core.kit import imports
from moorage.platform.control_start import ON_FIRST_USE
imports.execute_on_first_use(*ON_FIRST_USE)
from moorage.platform.control import Control
from moorage.settings import Settings
control = Control(Settings(data=Path(sys.argv[1])))
executed = [name for name, module in sys.modules.items() if type(module) is type(sys)]
control.opened.close()
print(json.dumps(executed))
"""


def test_an_idle_control_process_has_executed_no_modules_of_requests(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", IDLE, str(tmp_path)]
    Control(Settings(data=tmp_path)).opened.close()  # A new store needs more libraries.
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    executed = set(json.loads(done.stdout))

    libraries = ("pydantic_core", "cryptography.hazmat.bindings._rust", "joserfc._rfc7517", "yarl._url", "click")
    assert executed.isdisjoint((*NEVER, *libraries, "prometheus_client", "html.entities", "moorage.core.http.models"))
    assert executed.isdisjoint(("dns.message", "moorage.gateway.wildcard.jobs", "moorage.gateway.wildcard.state"))
    products = [name for name in executed if name.startswith("moorage.products.")]
    assert [name for name in products if name.endswith((".routes", ".schemas"))] == []
    assert [name for name in executed if name.endswith(".tables")]


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("moorage.platform.control", (*NEVER, "sqlalchemy.dialects.postgresql", "sqlalchemy.orm")),
        ("moorage.runtime.edge.main", (*NEVER, "sqlalchemy", "pydantic", "uvicorn", "structlog")),
        ("moorage.runtime.workers.main", (*NEVER, "sqlalchemy", "pydantic", "msgspec", "uvloop", "cryptography")),
        ("moorage.platform.supervisor", (*NEVER, "sqlalchemy", "pydantic", "msgspec", "asyncio", "cryptography")),
        ("moorage.cli.main", (*NEVER, "sqlalchemy", "pydantic", "msgspec", "asyncio", "cryptography")),
    ],
)
def test_a_process_does_not_import_what_it_does_not_use(module: str, absent: tuple[str, ...]) -> None:
    imported = imported_by(module)

    assert imported.isdisjoint(absent)


def test_a_process_that_was_taken_over_is_handled_like_a_child() -> None:
    sleeping = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    sleeping.returncode = 0  # Only the other object waits for it.
    process = TakenOver(sleeping.pid)

    running = process.poll()
    process.send_signal(signal.SIGTERM)

    assert running is None
    assert (process.wait(), process.poll()) == (-signal.SIGTERM, -signal.SIGTERM)


def control_on(data: Path) -> Control:
    ports = {"api_port": free_port(), "gateway_port": free_port(), "edge_port": free_port(), "metrics_port": 0}
    return Control(Settings(data=data, **ports), works=False)


async def status_of(control: Control) -> int:
    reader, writer = await asyncio.open_connection(control.settings.host, control.settings.api_port)
    writer.write(b"GET /v1/whoami HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    head = await reader.readline()
    writer.close()
    return int(head.split()[1])


@pytest.mark.anyio
async def test_the_api_answers_while_processes_are_adopted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MOORAGE_READY_FD", raising=False)
    control, is_adopted = control_on(tmp_path), asyncio.Event()

    async def adopt(*_: Any) -> None:
        await is_adopted.wait()

    monkeypatch.setattr(type(control.app.products.cronjobs), "adopt", adopt)
    starting = asyncio.create_task(control._start())
    async with asyncio.timeout(20):
        while not any(server.started for server in control._servers):
            await asyncio.sleep(0.01)
    status, is_started = await status_of(control), starting.done()
    is_adopted.set()
    await starting
    await control._stop()

    assert (status, is_started) == (401, False)
