"""`moorage move`: take a platform from SQLite to PostgreSQL, and its artifacts from the data folder to S3."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from moorage import settings as settings_module
from moorage.cli.help import single
from moorage.cli.operate.socket import DataOption, is_running, load
from moorage.cli.output.terminal import fail
from moorage.settings import Settings

app = single()
SHOWN_DAMAGED = 10


@app.command("move")
def _move(
    to_postgres: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Copy the SQLite store to this empty PostgreSQL database, postgresql://…"),
    ] = None,
    to_s3: Annotated[
        str | None, typer.Option(metavar="URL", help="Copy the artifacts to this bucket, s3://bucket/prefix.")
    ] = None,
    s3_endpoint: Annotated[
        str | None, typer.Option(metavar="URL", help="Address of the S3 server. [MOORAGE_ARTIFACTS_ENDPOINT]")
    ] = None,
    s3_region: Annotated[
        str | None, typer.Option(metavar="NAME", help="Region of the bucket. [MOORAGE_ARTIFACTS_REGION]")
    ] = None,
    data: DataOption = None,
) -> None:
    """Move the store to PostgreSQL, and the artifacts to S3; the platform must be stopped.

    Both are copies that are compared with the original, which stays as it is. PostgreSQL gets the whole store or, if
    the command fails or is killed, nothing. The keys of the bucket are MOORAGE_ARTIFACTS_ACCESS_KEY and
    MOORAGE_ARTIFACTS_SECRET_KEY.
    """
    if to_postgres is None and to_s3 is None:
        fail("say what to move: --to-postgres URL, --to-s3 URL, or both")
    current = load(data)
    chosen = {
        "database_url": to_postgres,
        "artifacts_url": to_s3,
        "artifacts_endpoint": s3_endpoint,
        "artifacts_region": s3_region,
    }
    target = _target(data, {name: value for name, value in chosen.items() if value is not None})
    _check(current, target, data, to_postgres=to_postgres, to_s3=to_s3)
    _run(current, target, moves_store=to_postgres is not None, moves_artifacts=to_s3 is not None)


def _target(data: Path | None, chosen: dict[str, Any]) -> Settings:
    """Return the settings of the platform after the move."""
    return settings_module.load(**({"data": data} if data is not None else {}), **chosen)


def _check(
    current: Settings, target: Settings, data: Path | None, *, to_postgres: str | None, to_s3: str | None
) -> None:
    if is_running(data):
        fail(f"a Moorage runs on {current.data}: stop it first")
    stored = current.database_url.get_secret_value()
    if to_postgres and stored not in ("", to_postgres):
        fail("MOORAGE_DATABASE_URL names another PostgreSQL: the store is there already, and only SQLite can be moved")
    if to_s3 and current.artifacts_url not in ("", target.artifacts_url):
        fail(f"the artifacts are in {current.artifacts_url} already; only those of the data folder can be moved")


def _run(current: Settings, target: Settings, *, moves_store: bool, moves_artifacts: bool) -> None:
    from moorage.platform import store_checks
    from moorage.platform.backups.backup import locked
    from moorage.platform.moving import artifacts, store
    from moorage.platform.moving.errors import CannotMove

    if not current.folder("store").is_dir():
        fail(f"there is no platform in {current.data}; is --data right?")
    try:
        with locked(current.folder("store")):
            if moves_artifacts:
                reads_sqlite = moves_store or not current.uses_postgres
                with store_checks.explained(current):
                    known = artifacts.read_sqlite(current) if reads_sqlite else artifacts.read_postgres(current)
                _show_artifacts(artifacts.copy(target, known, typer.echo), target)
            if moves_store:
                _show_store(store.move(target, typer.echo))
    except CannotMove as error:
        fail(str(error))
    _show_next(target, moves_store=moves_store, moves_artifacts=moves_artifacts)


def _show_artifacts(copied: Any, target: Settings) -> None:
    typer.echo(
        f"copied {copied.artifacts} artifacts ({copied.size / 2**20:.1f} MB) to {target.artifacts_url}; "
        f"{copied.artifacts - copied.uploaded} of them were there already"
    )
    for digest in copied.damaged[:SHOWN_DAMAGED]:
        typer.echo(f"warning: the artifact {digest} is missing or damaged in the data folder, and was not copied")
    if len(copied.damaged) > SHOWN_DAMAGED:
        typer.echo(f"warning: so are {len(copied.damaged) - SHOWN_DAMAGED} others")


def _show_store(moved: Any) -> None:
    done = "an earlier move had copied" if moved.was_complete else "copied and compared"
    typer.echo(f"{done} {moved.rows} rows of {moved.tables} tables: PostgreSQL at {moved.server}")


def _show_next(target: Settings, *, moves_store: bool, moves_artifacts: bool) -> None:
    """Print the settings of the new stores, and the way back."""
    from moorage.platform import store_checks

    typer.echo("\nSet these, and keep the other settings and the data folder:")
    if moves_store:
        typer.echo("  MOORAGE_DATABASE_URL=" + store_checks.without_password(target.database_url.get_secret_value()))
    if moves_artifacts:
        typer.echo(f"  MOORAGE_ARTIFACTS_URL={target.artifacts_url}")
        if target.artifacts_endpoint:
            typer.echo(f"  MOORAGE_ARTIFACTS_ENDPOINT={target.artifacts_endpoint}")
        typer.echo(f"  MOORAGE_ARTIFACTS_REGION={target.artifacts_region}")
        typer.echo("  MOORAGE_ARTIFACTS_ACCESS_KEY and MOORAGE_ARTIFACTS_SECRET_KEY")
    typer.echo(f"Then start it: moorage up --data {target.data}")
    if moves_store:
        typer.echo(
            f"The SQLite store is unchanged. To go back to it, without later changes: remove the settings and delete "
            f"{store_checks.moved_path(target)}"
        )
    elif moves_artifacts:
        typer.echo(f"The artifacts in {target.folder('artifacts')} are unchanged. To go back, remove the settings")
