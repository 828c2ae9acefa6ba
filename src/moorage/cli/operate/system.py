"""`moorage doctor`, `backup`, `restore` and `audit verify`."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from moorage.cli.help import single
from moorage.cli.operate.socket import DataOption, ask, data_folder, is_running, load
from moorage.cli.output.terminal import fail
from moorage.core.db.lock import DataFolderInUse
from moorage.settings import BadSettings, Settings

app = single()

Backup = Annotated[Path, typer.Argument(metavar="FILE", help="The backup, such as moorage-2030-01-31.tar.gz.")]


@app.command("doctor")
def _doctor(
    data: DataOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Check this machine for the platform's requirements, with a fix for each gap.

    Exits with code 1 if a requirement is missing.
    """
    from moorage.platform.doctor import checks as doctor

    checks = []
    try:
        settings = load(data)
        checks.append(
            doctor.Check("settings", doctor.State.OK, f"{len(settings.model_fields_set)} differ from defaults")
        )
    except BadSettings as error:
        # The machine is checked all the same, with default settings.
        settings = Settings.model_construct(data=data_folder(data))
        text = "; ".join(str(error).splitlines())
        checks.append(doctor.Check("settings", doctor.State.FAIL, text, "correct these variables"))
    checks += doctor.run(settings, running=is_running(data))
    typer.echo(json.dumps(doctor.as_json(checks), indent=2) if as_json else doctor.as_text(checks))
    if doctor.has_failed(checks):
        raise typer.Exit(1)


@app.command("backup")
def _backup(
    file: Backup,
    data: DataOption = None,
    files_only: Annotated[
        bool, typer.Option("--files-only", help="Leave out the store, because it is on PostgreSQL.")
    ] = False,
) -> None:
    """Back up the store, artifacts, databases and keys to one file.

    The platform may run meanwhile. The file gets its name after it was read back and checked. It contains the keys:
    protect it as well as them.
    """
    from moorage.platform.backups import backup

    settings = load(data)
    snapshot = (lambda: Path(ask(data, "snapshot"))) if is_running(data) else None
    with _explained("make the backup", "no backup was made"):
        manifest = backup.back_up(
            settings, file.absolute(), snapshot=snapshot, report=typer.echo, files_only=files_only
        )
    typer.echo(f"backup succeeded: {file} ({len(manifest.files)} files, {manifest.size / 2**20:.1f} MB before packing)")
    if settings.master_key.get_secret_value():
        typer.echo("keep MOORAGE_MASTER_KEY too: the secrets in this backup cannot be read without it")
    if settings.artifacts_url:
        typer.echo(f"the artifacts in {settings.artifacts_url} are not part of it: back them up there")
    if files_only:
        typer.echo("the store is not part of it: keep the dump of PostgreSQL that belongs to it")


@app.command("restore")
def _restore(
    file: Backup,
    data: DataOption = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the data that is there; it is moved to the trash folder.")
    ] = False,
) -> None:
    """Restore a backup after a complete check; the platform must be stopped."""
    from moorage.platform.backups import restore

    settings = load(data)
    with _explained("restore", "nothing was changed"):
        manifest, trash = restore.restore(
            settings, file.absolute(), force=force, running=is_running(data), report=typer.echo
        )
    typer.echo(f"restored {len(manifest.files)} files of {manifest.created_at} into {settings.data}")
    if trash is not None:
        typer.echo(f"the data that was there before is in {trash}")
    if not (settings.folder("keys") / "master_key").exists() and not settings.master_key.get_secret_value():
        typer.echo("this backup holds no master key: set MOORAGE_MASTER_KEY to the one it was made with")
    typer.echo(f"start it with: moorage up --data {settings.data}")


@contextlib.contextmanager
def _explained(action: str, outcome: str) -> Iterator[None]:
    """Exit with a message instead of a traceback for errors of machine or data."""
    from moorage.platform.backups.archive import CannotRestore
    from moorage.platform.backups.backup import CannotBackUp

    try:
        yield
    except (CannotBackUp, CannotRestore, DataFolderInUse) as error:
        fail(str(error))
    except json.JSONDecodeError:
        fail(f"cannot {action}: the platform could not copy its store, its log says why; {outcome}")
    except (OSError, sqlite3.Error) as error:
        fail(f"cannot {action}: {error}; {outcome}")
