"""`moorage cronjobs`: commands of a repository or an image that run on a schedule."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from moorage.cli.help import group
from moorage.cli.output.asking import YesOption, confirm
from moorage.cli.output.progress import Spinner, wait_for
from moorage.cli.output.tables import Column, JsonOption, show_json, show_list, show_one
from moorage.cli.output.terminal import is_terminal, log_text, note, paint, plain, say, stop
from moorage.cli.output.words import ago, state_style
from moorage.cli.resources import dockerfiles
from moorage.cli.resources.finding import given
from moorage.cli.resources.functions.folders import variables_of
from moorage.cli.session import connect
from moorage.cli.session.names import CronjobArgument
from moorage.client import Client
from moorage.client.models import CronjobExecution, EnvVar

app = group("Cronjobs: commands of a repository or an image that run on a schedule.")

SUCCEEDED = "succeeded"
PLATFORM = "system"  # stream of lines that the platform adds
BUILDING = frozenset(("pending", "deploying", "updating"))
BUILD_LINES = 20  # of the log of a failed build
DELETE_WAIT_S = 30

CommandOption = Annotated[str | None, typer.Option("--command", help="Command of each run.")]
TierOption = Annotated[str | None, typer.Option("--tier", help="micro, mini, large or xlarge.")]
BranchOption = Annotated[str | None, typer.Option("--branch", help="Branch of the repository.")]
BaseOption = Annotated[str | None, typer.Option("--base-dir", help="Folder of the repository.")]
BuildOption = Annotated[str | None, typer.Option("--build", help="Build command.")]
ImageOption = Annotated[str | None, typer.Option("--image", help="Public image, such as alpine:3.20.")]
AutoOption = Annotated[
    bool | None, typer.Option("--auto-deploy/--no-auto-deploy", help="Build after each push to the branch.")
]
EnvOption = Annotated[list[str] | None, typer.Option("--env", "-e", metavar="K=V", help="A variable; repeatable.")]


@app.command("list")
def list_cronjobs(as_json: JsonOption = False) -> None:
    """List the cronjobs of the organization, newest first.

    Examples: `moorage cronjobs list`.
    """
    columns = [
        Column("NAME", lambda row: row.name),
        Column("CRON", lambda row: row.cron_schedule),
        Column("STATUS", _state, lambda row: state_style(_state(row))),
        Column("RUNS", lambda row: row.run_stats.total_runs),
        Column("FAILED", lambda row: row.run_stats.failed_runs),
        Column("LAST", lambda row: _moment(row.run_stats.last_run_at)),
        Column("NEXT", lambda row: _moment(row.run_stats.next_run_at)),
    ]
    empty = "There are no cronjobs; create one with `moorage cronjobs create NAME --cron '0 6 * * *' --image IMAGE`."
    show_list(connect.client().cronjobs.iterate(page_size=100), columns, as_json=as_json, empty=empty)


def _state(row: Any) -> str:
    return "paused" if not row.is_active else str(row.status or "")


def _moment(text: str | None) -> str:
    return ago(text) if is_terminal() else text or ""


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Name of the cronjob.")],
    cron: Annotated[str, typer.Option("--cron", help="Five fields in UTC, or a name such as @hourly.")],
    image: ImageOption = None,
    repository: Annotated[str | None, typer.Option("--repository", help="Repository, as owner/name.")] = None,
    language: Annotated[str | None, typer.Option("--language", help="nodejs, python, go or docker.")] = None,
    command: CommandOption = None,
    branch: BranchOption = None,
    base_dir: BaseOption = None,
    build: BuildOption = None,
    dockerfile: dockerfiles.DockerfileOption = None,
    docker_context: dockerfiles.ContextOption = None,
    docker_target: dockerfiles.TargetOption = None,
    build_arg: dockerfiles.ArgsOption = None,
    tier: TierOption = None,
    auto_deploy: AutoOption = None,
    env: EnvOption = None,
    waits: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the end of the build.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Create a cronjob from a public image or a repository.

    Examples: `moorage cronjobs create sweep --cron @hourly --image alpine:3.20 --command 'sh -c date'`,
    `moorage cronjobs create report --cron '30 6 * * *' --repository demo/report --language python`.
    """
    if (image is None) == (repository is None):
        stop("give either --image or --repository")
    if any(option is not None for option in (dockerfile, docker_context, docker_target, build_arg)):
        language = language or "docker"
    fields = given(
        public_image=image,
        image_source="public_image" if image is not None else None,
        repository_name=repository,
        language=language,
        command=command,
        branch=branch,
        base_dir=base_dir,
        build_cmd=build,
        dockerfile_path=dockerfile,
        docker_build_context_dir=docker_context,
        docker_build_target=docker_target,
        docker_build_args=dockerfiles.args_of(build_arg),
        instance_type=tier,
        auto_deploy=auto_deploy,
        env=_env(env),
    )
    client = connect.client()
    created = client.cronjobs.create(name=name, cron_schedule=cron, **fields)
    if waits:
        _wait_for_build(client, created.name, created.deployment_uuid)
    show(name, as_json=as_json)


def _env(pairs: list[str] | None) -> list[EnvVar] | None:
    return [EnvVar(name=name, value=value) for name, value in variables_of(pairs).items()] if pairs else None


def _wait_for_build(client: Client, name: str, build: str | None) -> None:
    """Show the state until the build has ended; exit with the end of its log if it failed."""
    ended = wait_for(
        f"building {name}",
        lambda: client.cronjobs.read(name),
        lambda cronjob: str(cronjob.status),
        lambda cronjob: cronjob.status not in BUILDING,
    )
    if ended.status != "failed":
        return
    lines = client.cronjobs.read_build_logs(name, build).lines if build else []
    for line in lines[-BUILD_LINES:]:
        note(log_text(line.message))
    stop(f"the build of {name} failed")


@app.command()
def show(name: CronjobArgument, as_json: JsonOption = False) -> None:
    """Show a cronjob with its settings and counts of runs.

    Examples: `moorage cronjobs show report`.
    """
    cronjob = connect.client().cronjobs.read(name)
    stats = cronjob.run_stats
    pairs = [
        ("name", cronjob.name),
        ("status", _state(cronjob)),
        ("cron", cronjob.cron_schedule),
        ("image", cronjob.public_image),
        ("repository", cronjob.repository_name),
        ("branch", cronjob.branch if cronjob.repository_name else None),
        ("language", cronjob.language if cronjob.repository_name else None),
        ("command", cronjob.command or (cronjob.start_cmd if cronjob.repository_name else None)),
        ("tier", cronjob.instance_type),
        ("variables", [each.name for each in cronjob.env]),
        ("runs", f"{stats.total_runs}: {stats.successful_runs} succeeded, {stats.failed_runs} failed"),
        ("skipped", stats.skipped_runs),
        ("last run", stats.last_run_at),
        ("next run", stats.next_run_at),
    ]
    show_one(cronjob, pairs, as_json=as_json)


@app.command()
def update(
    name: CronjobArgument,
    cron: Annotated[str | None, typer.Option("--cron", help="Five fields in UTC, or a name such as @hourly.")] = None,
    image: ImageOption = None,
    command: CommandOption = None,
    branch: BranchOption = None,
    base_dir: BaseOption = None,
    build: BuildOption = None,
    dockerfile: dockerfiles.DockerfileOption = None,
    docker_context: dockerfiles.ContextOption = None,
    docker_target: dockerfiles.TargetOption = None,
    build_arg: dockerfiles.ArgsOption = None,
    tier: TierOption = None,
    auto_deploy: AutoOption = None,
    env: EnvOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change settings of a cronjob; settings without an option keep their values.

    --env and --build-arg add to the stored values.

    Examples: `moorage cronjobs update report --cron '0 7 * * *' --tier mini`.
    """
    client = connect.client()
    stored_args = client.cronjobs.read(name).docker_build_args if build_arg else None
    merged = None
    if env:
        known = {each.name: each.value for each in client.cronjobs.read(name).env}
        merged = [EnvVar(name=key, value=value) for key, value in (known | variables_of(env)).items()]
    fields = given(
        cron_schedule=cron,
        public_image=image,
        command=command,
        branch=branch,
        base_dir=base_dir,
        build_cmd=build,
        dockerfile_path=dockerfile,
        docker_build_context_dir=docker_context,
        docker_build_target=docker_target,
        docker_build_args=dockerfiles.args_of(build_arg, stored_args),
        instance_type=tier,
        auto_deploy=auto_deploy,
        env=merged,
    )
    if not fields:
        stop("nothing was given to change; see `moorage cronjobs update --help`")
    client.cronjobs.update(name, **fields)
    show(name, as_json=as_json)


@app.command()
def pause(name: CronjobArgument) -> None:
    """Start no further runs of a cronjob, until `moorage cronjobs resume`.

    Examples: `moorage cronjobs pause report`.
    """
    connect.client().cronjobs.pause(name)
    note(f"paused {name}")


@app.command()
def resume(name: CronjobArgument) -> None:
    """Run a paused cronjob at its times again.

    Examples: `moorage cronjobs resume report`.
    """
    connect.client().cronjobs.resume(name)
    note(f"resumed {name}")


@app.command()
def trigger(
    name: CronjobArgument,
    follows: Annotated[
        bool, typer.Option("--follow", "-f", help="Print the output as it comes, and exit with 1 if the run fails.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a cronjob now.

    Prints the id of the execution, for `moorage cronjobs logs`; with --follow its output.

    Examples: `moorage cronjobs trigger report --follow`.
    """
    client = connect.client()
    started = client.cronjobs.trigger(name)
    if follows:
        _follow(client, name, started.execution_uuid)
    elif as_json:
        show_json(started)
    else:
        say(started.execution_uuid)


def _follow(client: Client, name: str, uuid: str) -> None:
    note(f"execution {plain(uuid)}", "dim")
    try:
        for event in client.cronjobs.follow_execution(uuid):
            if event.name == "log":
                _show_line(event.data["stream"], event.data["message"])
    except KeyboardInterrupt:
        note(f"The run goes on. Follow it with: moorage cronjobs logs {name} {uuid} -f")
        raise typer.Exit(130) from None
    ended = _find(client, name, uuid)
    if ended is None:
        return
    code = "" if ended.exit_code is None else f", exit code {ended.exit_code}"
    if ended.status != SUCCEEDED:
        stop(f"the run {plain(ended.status)}{code}{f': {plain(ended.error_message)}' if ended.error_message else ''}")
    note(f"the run {plain(ended.status)}{code}", "green")


def _find(client: Client, name: str, uuid: str | None) -> CronjobExecution | None:
    """Return an execution, or the latest one."""
    for each in client.cronjobs.list_executions(name, page_size=50).items:
        if uuid is None or each.execution_uuid == uuid:
            return each
    return None


@app.command()
def executions(
    name: CronjobArgument,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=100, help="Number of executions.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """List the latest executions of a cronjob, newest first.

    Examples: `moorage cronjobs executions report`.
    """
    columns = [
        Column("EXECUTION", lambda row: row.execution_uuid),
        Column("STATUS", lambda row: row.status, lambda row: state_style(row.status)),
        Column("STARTED", lambda row: _moment(row.started_at)),
        Column("ENDED", lambda row: _moment(row.completed_at)),
        Column("CODE", lambda row: row.exit_code),
        Column("ERROR", lambda row: row.error_message),
    ]
    rows = connect.client().cronjobs.list_executions(name, page_size=count).items
    show_list(
        rows, columns, as_json=as_json, empty=f"{name} has not run yet; `moorage cronjobs trigger {name}` runs it."
    )


@app.command()
def logs(
    name: CronjobArgument,
    uuid: Annotated[
        str | None, typer.Argument(metavar="[EXECUTION]", help="Id of the execution; default: the latest one.")
    ] = None,
    follows: Annotated[bool, typer.Option("--follow", "-f", help="Wait for the end of a running execution.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the output of an execution.

    Examples: `moorage cronjobs logs report`, `moorage cronjobs logs report -f`.
    """
    client = connect.client()
    execution = _find(client, name, uuid)
    if execution is None and uuid is None:
        stop(f"{name} has not run yet; `moorage cronjobs trigger {name}` runs it")
    chosen = uuid or (execution.execution_uuid if execution else "")
    if follows:
        _follow(client, name, chosen)
        return
    output = client.cronjobs.read_execution_logs(chosen)
    if as_json:
        show_json(output)
        return
    for line in output.lines:
        _show_line(line.stream, line.message)


def _show_line(stream: str, text: str) -> None:
    """Print a line of the program, or on standard error a message of the platform about the run."""
    line = log_text(text)
    if stream == PLATFORM:
        note(line, "dim")
    else:
        say(line if stream == "stdout" else paint(line, "yellow"))


@app.command()
def delete(name: CronjobArgument, yes: YesOption = False) -> None:
    """Delete a cronjob with its executions and logs.

    Examples: `moorage cronjobs delete report`.
    """
    client = connect.client()
    cronjob = client.cronjobs.read(name)
    confirm(f"Delete the cronjob {name} with {cronjob.run_stats.total_runs} executions?", is_confirmed=yes)
    with Spinner(f"deleting {name}"):
        client.cronjobs.delete(name, wait=DELETE_WAIT_S)
    note(f"deleted {name}")
