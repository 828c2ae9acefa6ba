"""Background jobs of identity: welcome notifications and invitations."""

from __future__ import annotations

import html

from moorage.accounts.identity import notifications, users
from moorage.accounts.identity.organizations import invitations
from moorage.accounts.identity.organizations import service as orgs
from moorage.accounts.identity.organizations.invitations import Invitation, SendInvitation
from moorage.accounts.identity.organizations.service import OrganizationDeleted, WelcomeOrganization
from moorage.accounts.identity.states import InvitationStatus
from moorage.core.db.tx import Tx
from moorage.core.kit.texts import one_line
from moorage.core.mail.sender import Mailer
from moorage.core.worker.run import Handlers, Run


def register(handlers: Handlers, mailer: Mailer) -> None:
    async def send(run: Run, payload: SendInvitation) -> None:
        await send_invitation(run, payload, mailer)

    handlers.add(WelcomeOrganization, welcome)
    handlers.add(SendInvitation, send)
    handlers.listen(OrganizationDeleted)


def welcome(tx: Tx, payload: WelcomeOrganization) -> None:
    org = orgs.find(tx, payload.org_id)
    if org is None or users.find(tx, payload.user_id) is None:
        return
    notifications.add(
        tx,
        payload.user_id,
        "organization.welcome",
        f"{org.name} is ready",
        "Make an API token, invite your team, then deploy something.",
        about=f"org:{org.id}",
        org_id=org.id,
    )


async def send_invitation(run: Run, payload: SendInvitation, mailer: Mailer) -> None:
    """Add a notification, then send a mail with the same Message-ID on every attempt."""
    invitation = await run.write(lambda tx: _notify(tx, payload))
    if invitation is None or not mailer.is_configured:
        return
    if not await run.db.read(lambda tx: invitations.may_mail(tx, invitation)):
        return
    address, name = run.db.env.settings.api_url, one_line(invitation.org_name)
    text = (
        f"You were invited to join {name} as {invitation.role}.\n\n"
        f"Log in at {address} and accept the invitation within seven days.\n"
    )
    org, role = html.escape(name), html.escape(invitation.role)
    link = f'<a href="{html.escape(address)}">Log in</a> and accept the invitation within seven days.'
    await mailer.send(
        to=invitation.email,
        subject=f"Join {name} on Moorage",
        text=text,
        html=f"<p>You were invited to join <b>{org}</b> as {role}.</p><p>{link}</p>",
        message_id=f"<invitation-{invitation.id}-{invitation.created_at}@moorage>",
    )


def _notify(tx: Tx, payload: SendInvitation) -> Invitation | None:
    """Notify the invited user, if any; return the invitation if it is pending."""
    invitation = invitations.find(tx, payload.org_id, payload.invitation_id)
    if invitation is None or invitation.status != InvitationStatus.PENDING:
        return None
    invited = users.find_by_email(tx, invitation.email)
    if invited is not None:
        title = f"You were invited to join {invitation.org_name}"
        body = f"The role is {invitation.role}. Accept or decline it under /v1/invitations."
        notifications.add(tx, invited.id, "invitation", title, body, about=f"invitation:{invitation.id}")
    return invitation
