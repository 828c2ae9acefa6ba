/** The account of the person: profile, sessions, invitations, notifications. */

import { Bell, Mail, MonitorSmartphone } from "lucide-preact";
import type { AnyComponent } from "preact";
import { useLocation } from "preact-iso";
import { useState } from "preact/hooks";
import { useAction } from "../../api/actions";
import { api } from "../../api/client";
import { changed, useResource } from "../../api/resource";
import { chooseOrganization, session, signOut } from "../../api/session";
import type { Data, Item } from "../../api/types";
import { NotFound } from "../../frame/notfound";
import { PageHead } from "../../frame/page";
import type { Role } from "../../lib/roles";
import { text } from "../../text";
import { Button } from "../../ui/button";
import { Confirm, ConfirmDanger } from "../../ui/dialog";
import { Card, Empty, Facts, Loaded } from "../../ui/feedback";
import { Form, TextField, useForm } from "../../ui/form";
import { Table } from "../../ui/table";
import { Tabs } from "../../ui/tabs";
import { Time } from "../../ui/time";

type Account = Data<"/v1/account">;
type Session = Item<Data<"/v1/sessions">>;
type Invitation = Item<Data<"/v1/invitations">>;

const TABS: { key: string; label: string; component: AnyComponent }[] = [
  { key: "", label: text.account.tabs.profile, component: Profile },
  { key: "sessions", label: text.account.tabs.sessions, component: Sessions },
  { key: "invitations", label: text.account.tabs.invitations, component: Invitations },
  { key: "notifications", label: text.account.tabs.notifications, component: Notifications },
];

export default function AccountPage({ tab = "" }: { tab?: string }) {
  const open = TABS.find((each) => each.key === tab);
  if (!open) return <NotFound />;
  const Open = open.component;
  return (
    <>
      <PageHead title={text.account.title} />
      <Tabs label={text.account.title} tabs={TABS.map(({ key, label }) => ({ href: `/account${key && `/${key}`}`, label }))} />
      <Open />
    </>
  );
}

function Profile() {
  const account = useResource("/v1/account", {});
  return <Loaded of={account}>{(data) => <ProfileForm account={data} />}</Loaded>;
}

function ProfileForm({ account }: { account: Account }) {
  const t = text.account;
  const { username, firstName, lastName } = account;
  const form = useForm({ username, firstName, lastName }, (values) => api.patch("/v1/account", { body: values }), { done: t.saved, refreshes: ["/v1/account", "/v1/me"] });
  const [isAsking, setAsking] = useState(false);
  return (
    <div class="settings-grid">
      <Card title={t.profile}>
        <div class="stack wide">
          <Facts
            items={[
              [t.email, account.email],
              [t.member, <Time at={account.createdAt} />],
              [t.mfa, account.mfaEnabled ? t.mfaOn : t.mfaOff],
            ]}
          />
          <Form form={form} submit={text.common.save}>
            <div class="fields">
              <TextField form={form} name="firstName" label={t.firstName} />
              <TextField form={form} name="lastName" label={t.lastName} />
              <TextField form={form} name="username" label={t.username} />
            </div>
          </Form>
        </div>
      </Card>
      <Card title={text.organization.dangerTitle} isDanger>
        <div class="row between wrap">
          <p class="soft grow">{t.deleteText}</p>
          <Button kind="danger" why={session.value?.kind === "token" ? t.sessionsToken : undefined} onClick={() => setAsking(true)}>
            {t.delete}
          </Button>
        </div>
      </Card>
      {isAsking && (
        <ConfirmDanger title={t.delete} button={t.delete} name={account.email} act={() => api.delete("/v1/account")} onClose={() => setAsking(false)} done={t.deleted} onDone={signOut}>
          <p>{t.deleteText}</p>
        </ConfirmDanger>
      )}
    </div>
  );
}

function Sessions() {
  const isToken = session.value?.kind === "token";
  const list = useResource("/v1/sessions", {}, { pollMs: 20_000, isOn: !isToken });
  const [revoked, setRevoked] = useState<Session>();
  const t = text.account;
  if (isToken) {
    return (
      <Card>
        <Empty icon={<MonitorSmartphone size={20} />}>{t.sessionsToken}</Empty>
      </Card>
    );
  }
  return (
    <>
      <Card title={t.sessions} isFlush foot={t.sessionsHint}>
        <Loaded of={list}>
          {(items) => (
            <Table
              label={t.sessions}
              rows={items}
              keyOf={(each) => each.id}
              columns={[
                {
                  name: t.device,
                  of: (each) => (
                    <span class="row">
                      <strong class="cut">{each.device}</strong>
                      {each.current && <span class="tag accent">{t.thisOne}</span>}
                    </span>
                  ),
                },
                { name: t.address, of: (each) => <span class="mono soft">{each.address ?? "–"}</span> },
                { name: t.lastSeen, of: (each) => <Time at={each.lastSeenAt} /> },
                { name: text.orgCommon.expires, of: (each) => <Time at={each.expiresAt} />, isHiddenOnPhone: true },
                {
                  name: text.orgCommon.actions,
                  of: (each) =>
                    !each.current && (
                      <Button size="small" onClick={() => setRevoked(each)}>
                        {text.frame.signOut}
                      </Button>
                    ),
                },
              ]}
            />
          )}
        </Loaded>
      </Card>
      {revoked && (
        <Confirm
          title={t.revoke(revoked.device)}
          button={text.frame.signOut}
          act={() => api.delete("/v1/sessions/{session_id}", { path: { session_id: revoked.id } })}
          onClose={() => setRevoked(undefined)}
          done={t.revoked}
          refreshes={["/v1/sessions"]}
        >
          <p>{t.revokeText}</p>
        </Confirm>
      )}
    </>
  );
}

function Invitations() {
  const list = useResource("/v1/invitations", {}, { pollMs: 20_000 });
  const t = text.account;
  return (
    <Card title={t.invitations} isFlush>
      <Loaded of={list}>
        {(items) =>
          items.length === 0 ? (
            <Empty icon={<Mail size={20} />}>{t.noInvitations}</Empty>
          ) : (
            <ul class="feed">
              {items.map((each) => (
                <InvitationRow key={each.id} invitation={each} />
              ))}
            </ul>
          )
        }
      </Loaded>
    </Card>
  );
}

function InvitationRow({ invitation }: { invitation: Invitation }) {
  const { route } = useLocation();
  const t = text.account;
  const path = { invitation_id: invitation.id };
  const why = session.value?.kind === "token" ? t.sessionsToken : undefined;
  const refreshes = ["/v1/invitations", "/v1/me", "/v1/notifications"];
  const accept = useAction(() => api.post("/v1/invitations/{invitation_id}/accept", { path }), {
    done: t.accepted(invitation.organizationName),
    refreshes,
    onDone: () => (chooseOrganization(invitation.organizationId), route("/")),
  });
  const decline = useAction(() => api.post("/v1/invitations/{invitation_id}/decline", { path }), { done: t.declined, refreshes });
  return (
    <li>
      <Mail size={16} aria-hidden="true" />
      <div class="what">
        <p>
          <strong>{invitation.organizationName}</strong> {t.invitedAs(text.roles.names[invitation.role as Role] ?? invitation.role)}
        </p>
        <p class="soft small">
          {text.orgCommon.expires} <Time at={invitation.expiresAt} />
        </p>
      </div>
      <span class="row">
        <Button size="small" why={why} isBusy={decline.isBusy} onClick={() => decline.run()}>
          {t.decline}
        </Button>
        <Button size="small" kind="primary" why={why} isBusy={accept.isBusy} onClick={() => accept.run()}>
          {t.accept}
        </Button>
      </span>
    </li>
  );
}

function Notifications() {
  const list = useResource("/v1/notifications", {}, { pollMs: 20_000 });
  const t = text.account;
  const readAll = useAction(() => api.post("/v1/notifications/read"), { refreshes: ["/v1/notifications"] });
  const readOne = async (id: number) => {
    list.set((items) => items.map((each) => (each.id === id ? { ...each, read: true } : each)));
    await api.post("/v1/notifications/{notification_id}/read", { path: { notification_id: id } }).catch(() => undefined);
    changed("/v1/notifications");
  };
  const unread = list.data?.filter((each) => !each.read).length ?? 0;
  return (
    <Card
      title={t.notifications}
      isFlush
      actions={
        unread > 0 && (
          <Button size="small" isBusy={readAll.isBusy} onClick={() => readAll.run()}>
            {t.markAllRead}
          </Button>
        )
      }
    >
      <Loaded of={list}>
        {(items) =>
          items.length === 0 ? (
            <Empty icon={<Bell size={20} />}>{t.noNotifications}</Empty>
          ) : (
            <ul class="feed">
              {items.map((each) => (
                <li key={each.id} class={each.read ? "" : "fresh"}>
                  <Bell size={16} aria-hidden="true" />
                  <div class="what">
                    <p>
                      <strong>{each.title}</strong>
                    </p>
                    <p class="soft small">{each.body}</p>
                  </div>
                  <span class="row">
                    {!each.read && (
                      <Button size="small" kind="quiet" onClick={() => void readOne(each.id)}>
                        {t.markRead}
                      </Button>
                    )}
                    <span class="soft small">
                      <Time at={each.createdAt} />
                    </span>
                  </span>
                </li>
              ))}
            </ul>
          )
        }
      </Loaded>
    </Card>
  );
}
