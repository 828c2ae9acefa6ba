"""`moorage engines`: the database software of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli.help import group
from moorage.cli.operate.socket import DataOption, load
from moorage.cli.output.terminal import fail

if TYPE_CHECKING:
    from pathlib import Path

    from moorage.runtime.database_servers.software.catalog import SoftwareCatalog
    from moorage.runtime.database_servers.software.releases import Release

app = group("Database software of this machine.")


@app.command("list")
def list_(data: DataOption = None) -> None:
    """List database software: installed, incomplete, and fetchable."""
    catalog = _catalog(data, shared=False)
    rows = [
        (each.name, "installed", each.program if each.program.startswith("/") else each.home)
        for each in catalog.installed()
    ]
    rows += [(each.software.name, "incomplete", f"lacks {each.lacks}") for each in catalog.incomplete()]
    rows += [(release.name, "unusable", why) for release, why in catalog.unusable()]
    rows += [(each.name, "fetchable", f"moorage engines install {each.name}") for each in catalog.fetchable()]
    width = max((len(name) for name, _, _ in rows), default=0)
    for name, state, where in rows:
        typer.echo(f"{name:<{width}}  {state:<10}  {where}")
    for line in _served(catalog, load(data).substitution):
        typer.echo(line)


@app.command()
def install(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Such as postgresql-16.14.")] = None,
    shared: Annotated[
        bool, typer.Option("--shared", help="Beside the environment, for every data folder of this machine.")
    ] = False,
    data: DataOption = None,
) -> None:
    """Install database software ahead of time, so that no database has to wait for it.

    Without names: all fetchable software, the system's own, and uv, which builds of Python apps use. Software that is
    already installed stays unchanged. Software that was tried and does not run on this machine is left out; name it to
    try it again.
    """
    from moorage.runtime.builds.ports import BuildFailed
    from moorage.runtime.builds.toolchain import toolchain_downloads
    from moorage.runtime.database_servers.ports import ServerFailed
    from moorage.runtime.database_servers.software.libraries import CannotRun

    catalog, failed = _catalog(data, shared=shared), []
    if not names:
        try:
            into = toolchain_downloads.shared_folder() if shared else None
            typer.echo(
                f"{toolchain_downloads.ensure(load(data), toolchain_downloads.UV, typer.echo, into=into).name} is ready"
            )
        except BuildFailed as error:
            failed.append(toolchain_downloads.UV.name)
            typer.echo(f"moorage: {error}", err=True)
    unusable = [] if names else [why for _, why in catalog.unusable()]
    for release in _wanted(catalog, names or []):
        try:
            typer.echo(f"{catalog.install(release).name} is ready")
        except ServerFailed as error:
            failed += [release.name] if names or not isinstance(error, CannotRun) else []
            typer.echo(f"moorage: {error}", err=True)
    for why in unusable:
        typer.echo(f"moorage: {why}", err=True)
    if failed:
        again = "check the connection to the package registries, then repeat: moorage engines install"
        fail(f"not installed: {', '.join(failed)}; {again}{' --shared' if shared else ''}")


def _catalog(data: Path | None, *, shared: bool) -> SoftwareCatalog:
    from moorage.runtime.database_servers.software.catalog import SoftwareCatalog, shared_folder

    settings = load(data)
    own = settings.folder("engines")
    if shared:
        return SoftwareCatalog([], shared_folder(), extra_ca=settings.extra_ca, say=typer.echo)
    return SoftwareCatalog([own, shared_folder()], own, extra_ca=settings.extra_ca, say=typer.echo)


def _wanted(catalog: SoftwareCatalog, names: list[str]) -> list[Release]:
    from moorage.runtime.database_servers.software.releases import join_names

    offered = {release.name: release for release in [*catalog.fetchable(), *catalog.releases()]}
    known = offered | {release.name: release for release, _ in catalog.unusable()}
    unknown = [name for name in names if name not in known]
    if unknown:
        fail(f"{join_names(unknown)} is not available here; available: {join_names(known)}")
    return [known[name] for name in names] if names else list(offered.values())


def _served(catalog: SoftwareCatalog, substitution: str) -> list[str]:
    """Return the software that serves each version of the catalog."""
    from moorage.runtime.database_servers.ports import NotInstalled
    from moorage.runtime.database_servers.software.releases import VERSIONS

    lines = []
    for engine, versions in VERSIONS.items():
        for version in versions:
            try:
                choice = catalog.choose(engine, version, substitution)
                software = choice.note or f"{choice.release.product} {choice.release.version}"
            except NotInstalled as error:
                software = f"refused: {error}"
            lines.append(f"{engine} {version}: {software}")
    return lines
