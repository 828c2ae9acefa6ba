"""`moorage image`: push images that were built elsewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from moorage.cli.help import group
from moorage.cli.output.progress import Spinner
from moorage.cli.output.tables import JsonOption, show_json
from moorage.cli.output.terminal import note, plain, stop
from moorage.cli.resources.projects import following
from moorage.cli.session import connect

app = group("Images: deploy images that were built elsewhere.")

ENGINES = ("docker", "podman")
TIMEOUT_S = 120  # The platform stores a layer before it answers.
_NAME = re.compile(r"[^a-z0-9]+")


@app.callback()
def _group() -> None:
    """Images: deploy images that were built elsewhere."""


@app.command("push")
def push_image(
    source: Annotated[
        str, typer.Argument(help="An image of the local docker or podman, a saved archive, or an OCI layout folder.")
    ],
    project: Annotated[
        str | None, typer.Option("--project", "-p", help="Project to deploy; default: after the image.")
    ] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Tag on the platform; default: that of the image.")] = None,
    wait: following.WaitOption = True,
    as_json: JsonOption = False,
) -> None:
    """Push an image to the platform and deploy it; a new name creates the project.

    The image comes from an archive of `docker save` or `podman save`, from an OCI layout folder, or from the local
    docker or podman by its name. Layers that the organization has already are not sent again. `docker push` to the
    platform does the same.

    Examples: `moorage image push shop:v3`, `moorage image push shop.tar --project shop`, `moorage image push ./layout
    --project shop --tag v3`.
    """
    path = Path(source)
    is_file = path.exists()
    own_tag = "" if is_file else source.rpartition(":")[2] if ":" in source.rpartition("/")[2] else "latest"
    name = project or _project_name(path.name if is_file else source)
    chosen = tag or own_tag or "latest"
    with tempfile.TemporaryDirectory(prefix="moorage-image-") as folder:
        scratch = Path(folder)
        if not is_file:
            path = _save(source, scratch / "image.tar")
        digest = _push(path, scratch / "layout", name, chosen, own_tag or tag or "latest")
    note(f"pushed {plain(name)}:{plain(chosen)} ({digest[:19]})")
    _finish(name, digest, wait=wait, as_json=as_json)


def _push(path: Path, scratch: Path, name: str, tag: str, wanted: str) -> str:
    """Send an image to the platform; return its digest."""
    import httpx2 as httpx

    from moorage.cli.images import layouts, pushing
    from moorage.client.blocking import common_headers

    client, context = connect.client(), connect.selected()
    organization = client.organizations.read(client.identity.whoami().org_id)
    trust: dict[str, Any] = {} if context.url.startswith("https:") else {"verify": False}
    headers = common_headers(context.token, None)
    scratch.mkdir()
    try:
        with (
            httpx.Client(base_url=context.url, headers=headers, timeout=TIMEOUT_S, **trust) as http,
            layouts.opened(path, scratch) as layout,
            Spinner(f"pushing {plain(name)}:{plain(tag)}") as spinner,
        ):
            push = pushing.Push(http, f"{organization.slug}/{name}", layout, spinner.update)
            return push.run(layout.choose(wanted), tag)
    except (layouts.NotAnImage, pushing.PushFailed) as error:
        stop(f"cannot push {plain(name)}: {plain(str(error))}")
    except httpx.TransportError as error:
        stop(f"cannot reach {context.url}: {plain(str(error) or type(error).__name__)}")


def _finish(name: str, digest: str, *, wait: bool, as_json: bool) -> None:
    """Follow the deployment that the push started, if any."""
    client = connect.client()
    latest = client.deployments.list(name, limit=1).items
    if not latest or latest[0].status in ("succeeded", "failed"):
        project = client.projects.read(name)
        if as_json:
            show_json({"project": name, "digest": digest, "deploymentUuid": None})
        elif not project.auto_deploy:
            note("it is stored; autoDeploy is off, so deploy it with `moorage deployments redeploy`", "dim")
        else:
            note("it is the image that was deployed last; nothing changed", "dim")
        return
    uuid = latest[0].deployment_uuid
    started = {"project": name, "digest": digest, "deploymentUuid": uuid}
    following.finish(uuid, started, wait=wait, as_json=as_json)


def _save(reference: str, target: Path) -> Path:
    """Export an image of the local docker or podman; stops with advice if there is none."""
    programs = [each for each in ENGINES if shutil.which(each)]
    if not programs:
        stop(f"{plain(reference)} is no file or folder, and neither docker nor podman is installed here")
    reasons = [reason for program in programs if (reason := _export(program, reference, target))]
    if len(reasons) == len(programs):
        stop(f"{plain(reference)} cannot be exported: {plain('; '.join(reasons))}")
    return target


def _export(program: str, reference: str, target: Path) -> str:
    """Export an image unless another program has; return why that failed, or ""."""
    if target.exists():
        return ""
    argv = [program, "save", "--output", str(target), "--", reference]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    target.unlink(missing_ok=True)
    lines = done.stderr.strip().splitlines()
    return f"{program}: {lines[-1] if lines else f'exit code {done.returncode}'}"


def _project_name(source: str) -> str:
    """Return a project name after an image or a file: `acme/Shop_2:v1` gives `shop-2`."""
    last = source.rpartition("/")[2].partition("@")[0].partition(":")[0]
    for suffix in (".gz", ".tgz", ".tar", ".oci"):
        last = last.removesuffix(suffix)
    name = _NAME.sub("-", last.lower()).strip("-")[:63]
    if not name:
        stop("name the project with --project")
    return name
