"""Options of Dockerfile builds, which projects and cronjobs share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from moorage.cli.resources.finding import given
from moorage.cli.resources.functions.folders import variables_of

DockerfileOption = Annotated[str | None, typer.Option("--dockerfile", help="Path of the Dockerfile.")]
ContextOption = Annotated[
    str | None, typer.Option("--docker-context", help="Folder that COPY and ADD of the Dockerfile read.")
]
TargetOption = Annotated[str | None, typer.Option("--docker-target", help="Stage of the Dockerfile to build.")]
ArgsOption = Annotated[
    list[str] | None,
    typer.Option("--build-arg", metavar="K=V", help="Value of an ARG of the Dockerfile; repeatable."),
]


def args_of(pairs: list[str] | None, stored: Mapping[str, str] | None = None) -> dict[str, str] | None:
    """Return the stored build arguments with those of `--build-arg`; None if none was given."""
    return {**(stored or {}), **variables_of(pairs, "--build-arg")} if pairs else None


def fields_of(
    path: str | None, context: str | None, target: str | None, args: dict[str, str] | None
) -> dict[str, str | dict[str, str]]:
    """Return the given settings of a project's Dockerfile, by their names in the API."""
    return given(
        docker_file_path=path,
        docker_build_context_dir=context,
        docker_build_target=target,
        docker_build_args=args,
    )
