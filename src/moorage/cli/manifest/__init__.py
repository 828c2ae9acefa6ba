"""Settings as code: moorage.toml of a folder, compared with the platform and applied to it.

manifest.load(folder)            the checked file, or None without one; raises ManifestError
manifest.plan(client, file)      the differences, in the order in which they are applied
manifest.show(changes)           prints them
manifest.apply(client, changes)  makes them so; `prune=True` also removes
manifest.project_input(file, …)  the input that creates the project of the file
"""

from __future__ import annotations

from moorage.cli.manifest.applying import apply, project_input
from moorage.cli.manifest.changes import Action, Change, FieldChange, is_difference, missing_secrets, problems
from moorage.cli.manifest.planning import plan
from moorage.cli.manifest.reading import FILE_NAME, Manifest, ManifestError, load
from moorage.cli.manifest.showing import show

__all__ = [
    "FILE_NAME",
    "Action",
    "Change",
    "FieldChange",
    "Manifest",
    "ManifestError",
    "apply",
    "is_difference",
    "load",
    "missing_secrets",
    "plan",
    "problems",
    "project_input",
    "show",
]
