"""`moorage projects`: list, show, create, change, pause and delete projects."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer
from msgspec import UNSET

from moorage.cli.help import group
from moorage.cli.output.asking import YesOption, confirm_name
from moorage.cli.output.tables import Column, JsonOption, show_list, show_one
from moorage.cli.output.terminal import note, say, stop
from moorage.cli.output.words import ago, state_style
from moorage.cli.overview.problems import state_of_project
from moorage.cli.resources import dockerfiles
from moorage.cli.resources.projects import charts, following
from moorage.cli.session import connect
from moorage.cli.session.names import ProjectArgument
from moorage.client import models

app = group("Sites and apps: settings, usage and history.")

Kind = Literal["auto", "static", "container"]
Language = Literal["auto", "nodejs", "python", "go", "docker"]
LimitOption = Annotated[int, typer.Option("--limit", min=1, help="Newest entries to show.")]
BuildCmd = Annotated[str | None, typer.Option("--build-cmd", help="Build command.")]
StartCmd = Annotated[str | None, typer.Option("--start-cmd", help="Start command of an app.")]
BaseDir = Annotated[str | None, typer.Option("--base-dir", help="Folder of the project in the repository.")]
BuildDir = Annotated[str | None, typer.Option("--build-dir", help="Folder with the result of a static build.")]
Tier = Annotated[str | None, typer.Option("--tier", help="Key of a tier, such as `small`.")]
Analytics = Annotated[bool | None, typer.Option("--analytics/--no-analytics", help="Count visits.")]
AutoDeploy = Annotated[bool | None, typer.Option("--auto-deploy/--no-auto-deploy", help="Deploy each push.")]


@app.command("list")
def list_projects(
    kind: Annotated[
        Literal["static", "container"] | None, typer.Option("--kind", help="Only sites (static) or apps (container).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the projects of the organization, newest first.

    Examples: `moorage projects list`, `moorage projects list --kind container --json`.
    """
    columns = [
        Column("NAME", lambda row: row.name),
        Column("KIND", lambda row: row.slug),
        Column("STATE", state_of_project, lambda row: state_style(state_of_project(row))),
        Column("URL", lambda row: row.project_url),
        Column("REPOSITORY", lambda row: row.repository_name),
        Column("UPDATED", lambda row: ago(row.updated_at)),
    ]
    empty = "There are no projects; create the first one with `moorage deploy`."
    show_list(connect.client().projects.iterate(slug=kind), columns, as_json=as_json, empty=empty)


@app.command("show")
def show_project(name: ProjectArgument, as_json: JsonOption = False) -> None:
    """Show a project with its settings.

    Examples: `moorage projects show shop`, `moorage projects show shop --json`.
    """
    show_detail(connect.client().projects.read(name), as_json=as_json)


def show_detail(project: models.ProjectDetail, *, as_json: bool) -> None:
    scaling = project.auto_scaling
    pairs = [
        ("name", project.name),
        ("url", project.project_url),
        ("state", state_of_project(project)),
        ("kind", project.slug),
        ("language", project.language),
        ("image", project.public_image),
        ("repository", project.repository_name),
        ("branch", project.branch),
        ("base folder", project.base_dir),
        ("build command", project.build_cmd),
        ("build folder", project.build_dir),
        ("start command", project.start_cmd),
        ("Dockerfile", project.docker_file_path if project.language == "docker" else None),
        ("health check", project.health_check_path),
        ("tier", project.tier.key if project.tier else None),
        ("disk", f"{project.disk} GB" if project.disk else None),
        ("scaling", _scaling_text(scaling) if scaling and scaling.enabled else None),
        ("auto deploy", project.auto_deploy),
        ("analytics", project.enable_analytics),
        ("deploy guard", project.deploy_guard),
        ("variables", len(project.env)),
        ("deployments", f"{project.total_deployments} ({project.failed_deployments} failed)"),
        ("updated", ago(project.updated_at)),
    ]
    show_one(project, pairs, as_json=as_json)


def _scaling_text(scaling: models.AutoScaling) -> str:
    return f"{scaling.min_replicas} to {scaling.max_replicas} replicas at {scaling.target_cpu_percent} % CPU"


@app.command("create")
def create_project(
    name: Annotated[str, typer.Argument(help="Name of the project: lower-case letters, digits and dashes.")],
    repository: Annotated[str | None, typer.Argument(help="The repository, as `owner/name`.")] = None,
    image: Annotated[str | None, typer.Option("--image", help="A ready image instead of a repository.")] = None,
    branch: Annotated[str | None, typer.Option("--branch", help="Branch to deploy; default: main.")] = None,
    kind: Annotated[Kind, typer.Option("--kind", help="Site (static), app (container), or detected.")] = "auto",
    language: Annotated[Language | None, typer.Option("--language", help="Language of an app.")] = None,
    private: Annotated[bool, typer.Option("--private", help="The repository is private.")] = False,
    build_cmd: BuildCmd = None,
    start_cmd: StartCmd = None,
    base_dir: BaseDir = None,
    build_dir: BuildDir = None,
    dockerfile: dockerfiles.DockerfileOption = None,
    docker_context: dockerfiles.ContextOption = None,
    docker_target: dockerfiles.TargetOption = None,
    build_arg: dockerfiles.ArgsOption = None,
    tier: Tier = None,
    analytics: Analytics = None,
    auto_deploy: AutoDeploy = None,
    previews: Annotated[bool | None, typer.Option("--previews/--no-previews", help="Deploy pull requests.")] = None,
    wait: following.WaitOption = True,
    as_json: JsonOption = False,
) -> None:
    """Create a project from a repository or an image and deploy it.

    The repository is one of the platform's git server, or of the code host. `moorage deploy` uses a folder instead.

    Examples: `moorage projects create shop acme/shop`, `moorage projects create api acme/api --kind container
    --language python --auto-deploy`, `moorage projects create web --image nginx:1.27`,
    `moorage projects create site acme/site --dockerfile deploy/Dockerfile --build-arg MODE=production`.
    """
    if (repository is None) == (image is None):
        stop("give either a repository or --image", 2)
    docker = dockerfiles.fields_of(dockerfile, docker_context, docker_target, dockerfiles.args_of(build_arg))
    language = language or ("docker" if docker else None)
    kind = "container" if kind == "auto" and (docker or image is not None) else kind
    given: dict[str, Any] = {
        "repository_name": repository,
        "public_image": image,
        "branch": branch,
        "language": language or ("auto" if kind == "container" and image is None else None),
        "is_public": False if private else None,
        "build_cmd": build_cmd,
        "start_cmd": start_cmd,
        "base_dir": base_dir,
        "build_dir": build_dir,
        **docker,
        "tier": models.TierInput(key=tier) if tier else None,
        "enable_analytics": analytics,
        "auto_deploy": auto_deploy,
        "pr_preview": previews,
    }
    chosen = {field: value for field, value in given.items() if value is not None}
    models_of = {"auto": models.AutoInput, "static": models.StaticInput, "container": models.ContainerInput}
    model: Any = models_of[kind]
    if unknown := sorted(set(chosen) - set(model.__struct_fields__)):
        options = ", ".join(f"--{field.replace('_', '-')}" for field in unknown)
        stop(f"a project of kind {kind} has no {options}; choose another --kind")
    created = connect.client().projects.create(body=model(name=name, **chosen))
    following.finish(created.deployment_uuid, created, wait=wait, as_json=as_json)


@app.command("update")
def update_project(
    name: ProjectArgument,
    image: Annotated[str | None, typer.Option("--image", help="Image of a project that was created from one.")] = None,
    build_cmd: BuildCmd = None,
    start_cmd: StartCmd = None,
    base_dir: BaseDir = None,
    build_dir: BuildDir = None,
    health_check: Annotated[str | None, typer.Option("--health-check", help="Path of the health check.")] = None,
    dockerfile: dockerfiles.DockerfileOption = None,
    docker_context: dockerfiles.ContextOption = None,
    docker_target: dockerfiles.TargetOption = None,
    build_arg: dockerfiles.ArgsOption = None,
    tier: Tier = None,
    disk: Annotated[int | None, typer.Option("--disk", help="Size of the disk in GB.")] = None,
    replicas: Annotated[
        str | None, typer.Option("--replicas", help="Replicas: `2`, or a range to scale in: `1-5`.")
    ] = None,
    target_cpu: Annotated[int | None, typer.Option("--target-cpu", help="CPU percentage to scale at.")] = None,
    analytics: Analytics = None,
    auto_deploy: AutoDeploy = None,
    deploy_guard: Annotated[
        bool | None, typer.Option("--deploy-guard/--no-deploy-guard", help="Roll back a release that does far worse.")
    ] = None,
    wait: following.WaitOption = True,
    as_json: JsonOption = False,
) -> None:
    """Change settings of a project; settings without an option keep their values. --build-arg adds arguments.

    A change of compute deploys an app again. Other changes take effect with the next deployment.

    Examples: `moorage projects update api --tier medium --replicas 1-5`, `moorage projects update shop --analytics`.
    """
    client = connect.client()
    stored_args = client.projects.read(name).docker_build_args if build_arg else None
    changes: dict[str, Any] = {
        "public_image": image,
        "build_cmd": build_cmd,
        "start_cmd": start_cmd,
        "base_dir": base_dir,
        "build_dir": build_dir,
        "health_check_path": health_check,
        **dockerfiles.fields_of(dockerfile, docker_context, docker_target, dockerfiles.args_of(build_arg, stored_args)),
        "tier": models.TierInput(key=tier) if tier else None,
        "disk": disk,
        "auto_scaling": _scaling_input(replicas, target_cpu),
        "enable_analytics": analytics,
        "auto_deploy": auto_deploy,
        "deploy_guard": deploy_guard,
    }
    chosen = {field: value for field, value in changes.items() if value is not None}
    if not chosen:
        stop("no setting was given; `moorage projects update --help` lists them", 2)
    following.finish_update(client.projects.update(name, **chosen), wait=wait, as_json=as_json)


def _scaling_input(replicas: str | None, target_cpu: int | None) -> models.AutoScalingInput | None:
    if replicas is None:
        if target_cpu is not None:
            stop("--target-cpu needs --replicas with a range, such as 1-5", 2)
        return None
    low, _, high = replicas.partition("-")
    high = high or low
    if not low.isdecimal() or not high.isdecimal() or int(low) > int(high):
        stop(f"--replicas {replicas}: expected a number such as 2, or a range such as 1-5", 2)
    return models.AutoScalingInput(
        enabled=low != high,
        min_replicas=int(low),
        max_replicas=int(high),
        target_cpu_percent=target_cpu if target_cpu is not None else UNSET,
    )


@app.command("rename")
def rename_project(
    name: ProjectArgument,
    new_name: Annotated[str, typer.Argument(help="The new name.")],
    as_json: JsonOption = False,
) -> None:
    """Rename a project; its former address redirects for a day.

    Example: `moorage projects rename shop store`.
    """
    project = connect.client().projects.rename(name, name=new_name)
    if as_json:
        show_one(project, [], as_json=True)
    else:
        say(f"renamed {name} to {project.name}: {project.project_url}")


@app.command("pause")
def pause_project(name: ProjectArgument) -> None:
    """Pause a project: its address answers 503 until it is resumed.

    Example: `moorage projects pause shop`.
    """
    project = connect.client().projects.toggle(name, enable=False)
    say(f"{project.name} is paused; `moorage projects resume {project.name}` serves it again")


@app.command("resume")
def resume_project(name: ProjectArgument) -> None:
    """Serve a paused project again.

    Example: `moorage projects resume shop`.
    """
    project = connect.client().projects.toggle(name, enable=True)
    say(f"{project.name} is served at {project.project_url}")


@app.command("delete")
def delete_project(name: ProjectArgument, yes: YesOption = False) -> None:
    """Delete a project with its deployments, domains, rules and secrets.

    Asks for the name of the project, unless `--yes` is given.

    Example: `moorage projects delete shop`.
    """
    client = connect.client()
    project = client.projects.read(name)
    confirm_name(f"This deletes the project {project.name} and its history.", project.name, is_confirmed=yes)
    client.projects.delete(name)
    say(f"deleted {project.name}")


@app.command("audit-log")
def show_audit_log(name: ProjectArgument, limit: LimitOption = 50, as_json: JsonOption = False) -> None:
    """Show the changes of a project, newest first: who did what and when.

    Examples: `moorage projects audit-log shop`, `moorage projects audit-log shop --limit 200 --json`.
    """
    from itertools import islice

    from moorage.cli.resources.accounts.activity import COLUMNS

    rows = islice(connect.client().projects.iterate_audit_log(name, limit=min(limit, 100)), limit)
    show_list(rows, COLUMNS, as_json=as_json, empty="There are no entries.")


@app.command("tiers")
def list_tiers(as_json: JsonOption = False) -> None:
    """List the tiers: CPU, memory and disk of projects, databases and cronjobs.

    Example: `moorage projects tiers`.
    """
    columns = [
        Column("KEY", lambda row: row.key),
        Column("NAME", lambda row: row.name),
        Column("CPU", lambda row: f"{row.cpu:g}"),
        Column("MEMORY", lambda row: f"{row.memory:g} GB"),
        Column("DISK", lambda row: f"{row.disk} GB"),
        Column("PAID", lambda row: row.paid),
    ]
    show_list(connect.client().organizations.list_tiers(), columns, as_json=as_json, empty="There are no tiers.")
    if not as_json:
        note("choose one with `moorage projects update NAME --tier KEY`", "dim")


app.command("metrics")(charts.metrics)
app.command("analytics")(charts.analytics)
