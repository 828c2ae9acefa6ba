"""Follows a deployment to its end: the live log, the state and the final sentence."""

from __future__ import annotations

from dataclasses import dataclass

from moorage.cli.output.progress import Spinner
from moorage.cli.output.terminal import log_text, paint
from moorage.client import Client
from moorage.client.models import DeploymentStatusInfo

GOOD = frozenset(("succeeded", "live"))


@dataclass(frozen=True, slots=True)
class Ended:
    uuid: str
    status: str
    url: str
    reason: str

    @property
    def is_good(self) -> bool:
        return self.status in GOOD


def follow(client: Client, uuid: str, title: str, *, shows_log: bool = True) -> Ended:
    """Show the log of a deployment until it ends. Ctrl-C leaves the deployment running."""
    with Spinner(f"{title}: waiting") as spinner:
        for event in client.deployments.follow(uuid):
            if event.name == "log" and shows_log:
                spinner.print(_line(event.data))
            elif event.name == "status":
                spinner.update(f"{title}: {event.data.get('status', '')}")
    return read(client, uuid)


def read(client: Client, uuid: str) -> Ended:
    status: DeploymentStatusInfo = client.deployments.read_status(uuid)
    return Ended(uuid, status.status, status.project_url or "", status.reason or "")


def _line(data: dict[str, str]) -> str:
    """Return a line of the log: sentences of the platform stand out from the output of tools."""
    text = log_text(str(data.get("message", "")))
    if data.get("stream") == "system":
        return paint(text, "bold")
    return paint(f"  {text}", "dim") if "\x1b[" not in text else f"  {text}"
