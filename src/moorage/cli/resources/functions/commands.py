"""`moorage functions`: the group of all its commands."""

from __future__ import annotations

from moorage.cli.help import group
from moorage.cli.resources.functions import develop

app = group("Functions: deploy, call and observe them, or run one on this machine.")

app.command("dev")(develop.dev)
