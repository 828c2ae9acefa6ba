"""`moorage keys`: generate and rotate the platform's keys."""

from __future__ import annotations

import asyncio

import typer

from moorage.cli.help import group
from moorage.cli.operate.socket import DataOption, ask, check_store, is_running, load, opened_store
from moorage.cli.output.terminal import fail
from moorage.settings import Settings

app = group("Keys that encrypt secrets and sign sessions.")


@app.command()
def generate() -> None:
    """Print 32 random bytes in hex, for MOORAGE_MASTER_KEY or MOORAGE_SESSION_SECRET."""
    from moorage.platform import keys

    typer.echo(keys.generate())


@app.command()
def rotate(data: DataOption = None) -> None:
    """Re-encrypt every secret under a new master key.

    Keys in the data folder: stop the platform first; a new key is created and the old one removed. Keys in
    MOORAGE_MASTER_KEY: put the new key before the old one, restart, and run this; then remove the old one.
    """
    settings = load(data)
    if settings.master_key.get_secret_value():
        count = ask(data, "rotate-keys") if is_running(data) else asyncio.run(_rotate_stopped(settings))
        typer.echo(f"re-encrypted {count} secrets; the old keys in MOORAGE_MASTER_KEY are no longer needed")
        return
    if not (settings.folder("keys") / "master_key").exists():
        fail(
            f"there is no master key in {settings.folder('keys')}; set MOORAGE_MASTER_KEY to NEW,OLD and run this again"
        )
    if is_running(data):
        fail("the master key is in the data folder: stop the platform, then rotate")
    from moorage.platform import keys

    check_store(settings)
    keys.load_ring(settings)  # raises if the file is unusable
    keys.add_master_key(settings)
    count = asyncio.run(_rotate_stopped(settings))
    keys.drop_old_master_keys(settings)
    typer.echo(f"re-encrypted {count} secrets under a new key; the old key is gone")


async def _rotate_stopped(settings: Settings) -> int:
    from moorage.platform import admin, keys

    with opened_store(settings) as db:
        count = await admin.rotate(db)
    keys.rotate_route_file(settings)
    return count
