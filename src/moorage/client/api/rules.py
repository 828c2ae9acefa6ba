"""Routes of the group Rules. Generated from the OpenAPI document by `make docs`; edits are lost."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from moorage.client import models
from moorage.client.blocking import BlockingTransport
from moorage.client.exchange import Call, path_part
from moorage.client.model import List


class Rules:
    """Methods of the group Rules."""

    def __init__(self, transport: BlockingTransport) -> None:
        self._transport = transport

    def list_header(self, name: str) -> List[models.HeaderRule]:
        """List the header rules of a project, in their order."""
        return self._transport.call(Call("GET", f"/v1/projects/{path_part(name)}/headers"), List[models.HeaderRule])

    def set_header(
        self, name: str, *, headers: List[models.HeaderRuleInput], idempotency_key: str | None = None
    ) -> List[models.HeaderRule]:
        """Replace all header rules of a project.

        Every rule with a matching source applies; among rules for the same header, the first one wins. `*`
        in the last segment of a source matches the rest of the path; elsewhere `*` and `:name` match one
        segment.
        """
        return self._transport.call(
            Call(
                "PUT",
                f"/v1/projects/{path_part(name)}/headers",
                body=models.SetHeadersInput(headers=headers),
                key=idempotency_key,
            ),
            List[models.HeaderRule],
        )

    def list_redirects(self, name: str) -> List[models.RedirectRule]:
        """List the redirects of a project, in their order."""
        return self._transport.call(Call("GET", f"/v1/projects/{path_part(name)}/redirects"), List[models.RedirectRule])

    def set_redirects(
        self, name: str, *, redirects: List[models.RedirectRuleInput], idempotency_key: str | None = None
    ) -> List[models.RedirectRule]:
        """Replace all redirects of a project.

        The first rule with a matching source applies, even if a file exists at the path. In the
        destination, `*` (or `:splat`) and `:name` are replaced by the text that they matched; the request's
        query is kept, unless the destination has its own. Redirect loops are refused.
        """
        return self._transport.call(
            Call(
                "PUT",
                f"/v1/projects/{path_part(name)}/redirects",
                body=models.SetRedirectsInput(redirects=redirects),
                key=idempotency_key,
            ),
            List[models.RedirectRule],
        )

    def test(
        self,
        name: str,
        *,
        path: str,
        redirects: List[models.RedirectRuleInput] | UnsetType | None = UNSET,
        headers: List[models.HeaderRuleInput] | UnsetType | None = UNSET,
        idempotency_key: str | None = None,
    ) -> models.TriedRules:
        """Tell what the rules of a project do with a path, without a request to it.

        `redirects` lists each redirect on the way, `final` is the address at its end, and `headers` has the
        header rules that apply there. With `redirects` or `headers` in the body, those rules are tried
        instead of the stored ones; nothing is stored.
        """
        return self._transport.call(
            Call(
                "POST",
                f"/v1/projects/{path_part(name)}/redirects/test",
                body=models.TryRulesInput(path=path, redirects=redirects, headers=headers),
                key=idempotency_key,
            ),
            models.TriedRules,
        )
