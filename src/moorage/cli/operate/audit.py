"""`moorage audit`: integrity of the activity feed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import typer

from moorage.cli.help import group
from moorage.cli.operate.socket import DataOption, ask, is_running, load, opened_store
from moorage.cli.output.terminal import fail

app = group("Integrity of the activity feed.")


@app.command("verify")
def verify(data: DataOption = None) -> None:
    """Check that no row of the activity feed was changed, removed or added outside of the platform."""
    result = ask(data, "verify-audit") if is_running(data) else asyncio.run(_verify_stopped(data))
    for broken in result["broken"]:
        typer.echo(f"organization {broken['organization']}, row {broken['row']}: {broken['why']}", err=True)
    if result["broken"]:
        fail("the activity feed was tampered with")
    typer.echo(f"all {result['rows']} rows hold")


async def _verify_stopped(data: Path | None) -> dict[str, Any]:
    from moorage.platform import admin

    with opened_store(load(data)) as db:
        return await admin.verify_audit(db)
