"""Routes of the group GitHub. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from moorage.client import models
from moorage.client.blocking import BlockingTransport
from moorage.client.exchange import Call, path_part
from moorage.client.model import List


class Github:
    """Methods of the group GitHub."""

    def __init__(self, transport: BlockingTransport) -> None:
        self._transport = transport

    def list(self) -> List[models.InstallationOut]:
        """List the connected GitHub accounts, which give access to private repositories."""
        return self._transport.call(Call("GET", "/v1/github/installations"), List[models.InstallationOut])

    def connect(
        self,
        *,
        state: str,
        code: str,
        installation_id: int | UnsetType | None = UNSET,
        idempotency_key: str | None = None,
    ) -> models.InstallationOut:
        """Finish connecting a GitHub account with the state and code of GitHub's redirect.

        The same user must begin and finish, and the GitHub user must own the account.
        """
        return self._transport.call(
            Call(
                "POST",
                "/v1/github/installations",
                body=models.ConnectInstallationInput(state=state, code=code, installation_id=installation_id),
                key=idempotency_key,
            ),
            models.InstallationOut,
        )

    def begin(self, *, idempotency_key: str | None = None) -> models.SetupBegun:
        """Begin to connect a GitHub account: open the returned URL within 15 minutes.

        `url` installs the app; `authorizeUrl` is for an account that has installed it. The page after
        GitHub's redirect shows the command that finishes, which works only for the user and organization
        that began.
        """
        return self._transport.call(
            Call("POST", "/v1/github/installations/begin", key=idempotency_key), models.SetupBegun
        )

    def disconnect(self, installation_id: int | str, *, idempotency_key: str | None = None) -> None:
        """Disconnect a GitHub account; its private repositories cannot be read any more."""
        self._transport.call(
            Call("DELETE", f"/v1/github/installations/{path_part(installation_id)}", key=idempotency_key), None
        )
