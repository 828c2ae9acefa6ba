"""`moorage databases`: the group of all its commands, for users and for the operator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, cast

import typer

from moorage.cli.help import group
from moorage.cli.output.asking import YesOption, confirm, confirm_name, read_secret
from moorage.cli.output.progress import Spinner
from moorage.cli.output.tables import Column, JsonOption, show_list, show_one
from moorage.cli.output.terminal import is_terminal, note, plain, say, stop
from moorage.cli.output.words import ago, size, state_style
from moorage.cli.resources.databases import backups, connecting
from moorage.cli.resources.databases.waiting import WaitOption, check_reason, until_running
from moorage.cli.resources.finding import given
from moorage.cli.resources.series import Series, show_series
from moorage.cli.session import connect
from moorage.cli.session.names import DatabaseArgument
from moorage.client.models import DatabaseDetail

app = group("Databases: create, connect, back up and restore them.")

VERSIONS = {"postgresql": "16.4.0", "mysql": "8.4.2"}
DELETE_WAIT_S = 30
FREE = "free"
Number = Annotated[int, typer.Argument(help="Number of the database, as `moorage databases list --data` shows it.")]
# `moorage.cli.operate.socket` has the same option, and needs the server's dependencies.
DataOption = Annotated[
    Path | None, typer.Option("--data", help="Data folder of the platform. [MOORAGE_DATA; default: .moorage]")
]


@app.command("list")
def list_databases(
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Operator: the databases of all organizations on this data folder, also deleted."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the databases of the organization, newest first; with --data those of all organizations.

    Examples: `moorage databases list`, `moorage databases list --data /srv/moorage`.
    """
    if data is not None:
        from moorage.cli.operate import databases as operator

        operator.list_databases(data, as_json=as_json)
        return
    columns = [
        Column("NAME", lambda row: row.name),
        Column("TYPE", lambda row: row.type),
        Column("VERSION", lambda row: row.version),
        Column("TIER", lambda row: row.instance_type),
        Column("STATUS", lambda row: row.status, lambda row: state_style(row.status)),
        Column("VISIBILITY", lambda row: row.visibility),
        Column("CREATED", lambda row: ago(row.created_at) if is_terminal() else row.created_at),
    ]
    rows = connect.client().databases.iterate(page_size=100)
    empty = "There are no databases; create one with `moorage databases create NAME`."
    show_list(rows, columns, as_json=as_json, empty=empty)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Name of the database.")],
    kind: Annotated[str, typer.Option("--type", help="postgresql or mysql.")] = "postgresql",
    version: Annotated[str | None, typer.Option("--version", help="Default: 16.4.0 or 8.4.2.")] = None,
    tier: Annotated[str, typer.Option("--tier", help="free, micro, mini, small, medium, large or xlarge.")] = FREE,
    project: Annotated[
        str | None, typer.Option("--project", help="Project whose app gets the address as DATABASE_URL.")
    ] = None,
    public: Annotated[bool | None, typer.Option("--public/--private", help="Who may connect.")] = None,
    backup: Annotated[bool | None, typer.Option("--backup/--no-backup", help="Make automatic backups.")] = None,
    replica: Annotated[bool, typer.Option("--replica", help="Keep a second server that takes over.")] = False,
    username: Annotated[str | None, typer.Option("--username", help="Default: generated.")] = None,
    database: Annotated[str | None, typer.Option("--database", help="Name on the server; default: generated.")] = None,
    password: Annotated[
        bool, typer.Option("--password", help="Ask for the password, or read it from standard input.")
    ] = False,
    waits: WaitOption = True,
    as_json: JsonOption = False,
) -> None:
    """Create a database.

    Examples: `moorage databases create orders`, `moorage databases create shop --type mysql --tier small --backup`,
    `moorage databases create orders --tier micro --project web`.
    """
    if kind not in VERSIONS:
        stop(f"--type should be postgresql or mysql, not {plain(kind)}")
    client = connect.client()
    fields = given(
        visibility=None if public is None else "public" if public else "private",
        backup=None if backup is None else "enabled" if backup else "disabled",
        architecture="replicaset" if replica else None,
        username=username,
        db_name=database,
        password=read_secret(f"the password of {name}") if password else None,
        project_id=client.projects.read(project).id if project is not None else None,
    )
    engine = cast(Literal["postgresql", "mysql"], kind)
    created = client.databases.create(
        name=name, type=engine, version=version or VERSIONS[kind], instance_type=tier, **fields
    )
    if waits:
        created = until_running(client, name, f"creating {name}")
        note(f"connect with: moorage databases connect {name}")
    _show(created, as_json=as_json)


@app.command()
def show(name: DatabaseArgument, as_json: JsonOption = False) -> None:
    """Show a database with its state, address and size.

    Examples: `moorage databases show orders`.
    """
    _show(connect.client().databases.read(name), as_json=as_json)


def _show(database: DatabaseDetail, *, as_json: bool) -> None:
    tier = database.server_details
    pairs = [
        ("name", database.name),
        ("status", database.status),
        ("reason", database.status_reason),
        ("type", database.type),
        ("version", database.version),
        ("server", database.engine_version),
        ("note", database.engine_note),
        ("tier", f"{database.instance_type}: {tier.cpu:g} CPU, {tier.memory:g} GB memory, {tier.disk} GB disk"),
        ("disk used", size(database.disk_used_bytes)),
        ("address", database.public_url or database.private_url),
        ("visibility", database.visibility),
        ("architecture", database.architecture),
        ("backups", database.backup),
        ("restore tested", database.last_verified_restore),
        ("created", database.created_at),
    ]
    show_one(database, pairs, as_json=as_json)


app.command("connect")(connecting.connect)
app.command("url")(connecting.url)
app.command("backup")(backups.backup)
app.command("backups")(backups.backups)
app.command("restore")(backups.restore)


@app.command()
def metrics(
    name: DatabaseArgument,
    period: Annotated[str, typer.Option("--range", help="1h, 24h, 7d or 30d.")] = "24h",
    as_json: JsonOption = False,
) -> None:
    """Show connections and queries per second over time, and the present use of CPU and memory.

    Charts on a terminal, one line per point in a pipe.

    Examples: `moorage databases metrics orders --range 1h`.
    """
    if period not in ("1h", "24h", "7d", "30d"):
        stop(f"--range should be 1h, 24h, 7d or 30d, not {plain(period)}")
    client = connect.client()
    chosen = cast(Literal["1h", "24h", "7d", "30d"], period)
    timeseries = client.databases.read_metrics_timeseries(name, range=chosen)
    if not as_json and is_terminal():
        now = client.databases.read_metrics(name)
        used = (
            f"{now.cpu_milli or 0} mCPU, {now.memory_mi_b or 0:.0f} MB memory" if now.available else "not measured yet"
        )
        say(f"now: {used}")
        if not timeseries.enabled:
            note("metrics of the server need a paid tier", "dim")
    points = timeseries.points
    series: Series = {
        "connections": [each.connections for each in points],
        "qps": [each.qps for each in points],
        "cache": [each.cache_hit_pct for each in points],
    }
    titles = {"connections": "connections", "qps": "queries per second", "cache": "cache hits in %"}
    show_series(timeseries, [each.t for each in points], series, titles, as_json=as_json)


@app.command()
def extensions(name: DatabaseArgument, as_json: JsonOption = False) -> None:
    """List the extensions of a PostgreSQL database: installed, available, and why others are not.

    Examples: `moorage databases extensions orders`.
    """
    columns = [
        Column("EXTENSION", lambda row: row.name),
        Column("INSTALLED", lambda row: row.installed_version),
        Column("AVAILABLE", lambda row: row.default_version if row.available else "no"),
        Column("ABOUT", lambda row: row.description if row.available else row.reason),
    ]
    rows = connect.client().databases.list_extensions(name).items
    show_list(rows, columns, as_json=as_json, empty="This kind of database has no extensions.")


@app.command()
def tier(
    name: DatabaseArgument,
    key: Annotated[str, typer.Argument(metavar="TIER", help="free, micro, mini, small, medium, large or xlarge.")],
    yes: YesOption = False,
    waits: WaitOption = True,
    as_json: JsonOption = False,
) -> None:
    """Change the tier of a database; its server restarts, which takes about a second.

    Examples: `moorage databases tier orders medium`.
    """
    client = connect.client()
    before = client.databases.read(name)
    fields = given(expected_current_tier=before.instance_type)
    if key == FREE and before.instance_type != FREE:
        confirm(f"Change {name} to the free tier? Its automatic backups and metrics end.", is_confirmed=yes)
        fields["confirm_downgrade_to_free"] = True
    after = client.databases.change_tier(name, instance_type=key, **fields)
    if waits:
        after = until_running(client, name, f"changing {name} to {key}")
        check_reason(before, after)
    _show(after, as_json=as_json)


app.command("upgrade", help="Change the tier of a database: another name of `tier`.")(tier)


@app.command()
def rotate_password(name: DatabaseArgument, yes: YesOption = False, waits: WaitOption = True) -> None:
    """Set a new random password; a linked app restarts with it.

    Examples: `moorage databases rotate-password orders`.
    """
    confirm(f"Set a new password for {name}? Clients with the old one cannot connect any more.", is_confirmed=yes)
    client = connect.client()
    client.databases.rotate_password(name)
    if waits:
        until_running(client, name, f"setting a password for {name}")
    note(f"{name} has a new password; see it with: moorage databases url {name} --reveal")


@app.command()
def delete(name: DatabaseArgument, yes: YesOption = False) -> None:
    """Delete a database with its data and backups.

    The operator can bring it back for some days.

    Examples: `moorage databases delete orders`.
    """
    client = connect.client()
    database = client.databases.read(name)
    what = f"This deletes the database {name} with {size(database.disk_used_bytes)} of data and all backups."
    confirm_name(what, name, is_confirmed=yes)
    with Spinner(f"deleting {name}"):
        client.databases.delete(name, wait=DELETE_WAIT_S)
    note(f"deleted {name}; the operator can bring it back with `moorage databases undelete` for some days")


# Operator commands, over the socket of a platform on this machine.


@app.command("stop")
def stop_database(number: Number, data: DataOption = None) -> None:
    """Operator: stop a database of any organization until `moorage databases start`; its data stays."""
    from moorage.cli.operate import databases as operator

    operator.stop(number, data)


@app.command()
def start(number: Number, data: DataOption = None) -> None:
    """Operator: start a database that was stopped, or that failed for a reason that is gone."""
    from moorage.cli.operate import databases as operator

    operator.start(number, data)


@app.command()
def undelete(number: Number, data: DataOption = None) -> None:
    """Operator: restore a deleted database from the trash, with its data, address and password."""
    from moorage.cli.operate import databases as operator

    operator.undelete(number, data)
