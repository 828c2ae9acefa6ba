"""What identity does after it answered: welcomes and invitations."""

from __future__ import annotations

from html import escape

from moorage.accounts.identity import notifications, users
from moorage.accounts.identity.organizations import invitations
from moorage.accounts.identity.organizations import service as orgs
from moorage.accounts.identity.organizations.invitations import Invitation, SendInvitation
from moorage.accounts.identity.organizations.service import OrganizationDeleted, WelcomeOrganization
from moorage.accounts.identity.states import InvitationStatus
from moorage.core.db.tx import Tx
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
    notifications.tell(
        tx,
        payload.user_id,
        "organization.welcome",
        f"{org.name} is ready",
        "Make an API token, invite your team, then deploy something.",
        about=f"org:{org.id}",
        org_id=org.id,
    )


async def send_invitation(run: Run, payload: SendInvitation, mailer: Mailer) -> None:
    """Notify first, in a transaction; then mail, under an id that stays the same when the job runs again."""
    found = await run.write(lambda tx: _notify(tx, payload))
    if found is None or not mailer.is_configured:
        return
    address = run.db.env.settings.api_url
    text = (
        f"You were invited to join {found.org_name} as {found.role}.\n\n"
        f"Log in at {address} and accept the invitation within seven days.\n"
    )
    link = f'<a href="{escape(address)}">Log in</a> and accept the invitation within seven days.'
    await mailer.send(
        to=found.email,
        subject=f"Join {found.org_name} on Moorage",
        text=text,
        html=f"<p>You were invited to join <b>{escape(found.org_name)}</b> as {escape(found.role)}.</p><p>{link}</p>",
        message_id=f"<invitation-{found.id}-{found.created_at}@moorage>",
    )


def _notify(tx: Tx, payload: SendInvitation) -> Invitation | None:
    """Return the invitation if it still waits, having told its user if there is one."""
    found = invitations.find(tx, payload.org_id, payload.invitation_id)
    if found is None or found.status != InvitationStatus.PENDING:
        return None
    invited = users.find_by_email(tx, found.email)
    if invited is not None:
        title = f"You were invited to join {found.org_name}"
        body = f"The role is {found.role}. Accept or decline it under /v1/invitations."
        notifications.tell(tx, invited.id, "invitation", title, body, about=f"invitation:{found.id}")
    return found
