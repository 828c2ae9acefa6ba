/** Members with their roles, and pending invitations. */

import { UserPlus, UserX } from "lucide-preact";
import { useState } from "preact/hooks";
import { useAction } from "../../api/actions";
import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import type { Data, Item } from "../../api/types";
import { can, whyNot, type Role } from "../../lib/roles";
import { text } from "../../text";
import { Button } from "../../ui/button";
import { Confirm, Dialog } from "../../ui/dialog";
import { Card, Empty, Loaded } from "../../ui/feedback";
import { Choices, Form, Select, TextField, useForm } from "../../ui/form";
import { Table } from "../../ui/table";
import { Time } from "../../ui/time";
import type { OrganizationTabProps } from "./organization";

type Member = Item<Data<"/v1/orgs/{org_id}/members">>;
type Invitation = Item<Data<"/v1/orgs/{org_id}/invitations">>;

const ROLES: Role[] = ["viewer", "member", "admin", "owner"];

/** Roles that this person may give: only an owner makes owners. */
function roleOptions() {
  return ROLES.map((value) => ({ value, label: text.roles.names[value], hint: text.members.roleHints[value], isDisabled: value === "owner" && !can("owner") }));
}

export default function Members({ organization }: OrganizationTabProps) {
  const orgId = Number(organization.organizationId);
  const list = useResource("/v1/orgs/{org_id}/members", { path: { org_id: orgId } }, { pollMs: 30_000 });
  const me = useResource("/v1/me", {});
  const [isInviting, setInviting] = useState(false);
  const [removed, setRemoved] = useState<Member>();
  const t = text.members;
  return (
    <div class="stack wide">
      <Card
        title={t.title}
        isFlush
        actions={
          <Button size="small" kind="primary" why={whyNot("admin")} onClick={() => setInviting(true)} icon={<UserPlus size={14} aria-hidden="true" />}>
            {t.invite}
          </Button>
        }
      >
        <Loaded of={list}>{(items) => <MemberTable items={items} orgId={orgId} myId={me.data?.id} onRemove={setRemoved} />}</Loaded>
      </Card>
      {can("admin") && <Invitations orgId={orgId} />}
      {isInviting && <Invite orgId={orgId} onClose={() => setInviting(false)} />}
      {removed && (
        <Confirm
          title={t.remove(removed.name || removed.email)}
          button={t.remove(removed.name || removed.email)}
          act={() => api.delete("/v1/orgs/{org_id}/members/{user_id}", { path: { org_id: orgId, user_id: removed.userId } })}
          onClose={() => setRemoved(undefined)}
          done={t.removed(removed.name || removed.email)}
          refreshes={["/v1/orgs"]}
        >
          <p>{t.removeText(removed.name || removed.email)}</p>
        </Confirm>
      )}
    </div>
  );
}

interface MemberTableProps {
  items: Member[];
  orgId: number;
  myId: number | undefined;
  onRemove: (member: Member) => void;
}

function MemberTable({ items, orgId, myId, onRemove }: MemberTableProps) {
  const t = text.members;
  return (
    <Table
      label={t.title}
      rows={items}
      keyOf={(each) => each.userId}
      columns={[
        {
          name: text.common.name,
          sort: (each) => each.name,
          of: (each) => (
            <span class="people">
              <span class="avatar" aria-hidden="true">
                {(each.name || each.email).charAt(0).toUpperCase()}
              </span>
              <span class="stack tight">
                <span class="row">
                  <strong class="cut">{each.name || each.email}</strong>
                  {each.userId === myId && <span class="tag">{text.orgCommon.you}</span>}
                </span>
                <span class="soft small cut">{each.email}</span>
              </span>
            </span>
          ),
        },
        { name: text.orgCommon.role, width: "170px", sort: (each) => ROLES.indexOf(each.role as Role), of: (each) => <RoleSelect member={each} orgId={orgId} /> },
        { name: t.joined, of: (each) => <Time at={each.joinedAt} />, sort: (each) => each.joinedAt },
        {
          name: text.orgCommon.actions,
          width: "70px",
          of: (each) =>
            each.userId !== myId && (
              <span class="row-tools">
                <Button kind="quiet" size="small" label={t.remove(each.name || each.email)} why={whyNot("admin")} onClick={() => onRemove(each)} icon={<UserX size={14} aria-hidden="true" />} />
              </span>
            ),
        },
      ]}
    />
  );
}

function RoleSelect({ member, orgId }: { member: Member; orgId: number }) {
  const t = text.members;
  const change = useAction((role: Role) => api.patch("/v1/orgs/{org_id}/members/{user_id}", { path: { org_id: orgId, user_id: member.userId }, body: { role } }), {
    done: (changed) => t.roleChanged(changed.name || changed.email, changed.role),
    refreshes: ["/v1/orgs", "/v1/me"],
  });
  const why = whyNot("admin") ?? (member.role === "owner" && !can("owner") ? t.ownersOnly : undefined);
  if (why) return <span title={why}>{text.roles.names[member.role as Role] ?? member.role}</span>;
  return <Select label={t.changeRole(member.name || member.email)} value={member.role} options={roleOptions()} onChange={(role) => void change.run(role as Role)} />;
}

function Invite({ orgId, onClose }: { orgId: number; onClose: () => void }) {
  const t = text.members;
  const form = useForm({ email: "", role: "member" as Role }, (values) => api.post("/v1/orgs/{org_id}/invitations", { path: { org_id: orgId }, body: values }), {
    done: (made) => t.invited(made.email),
    refreshes: ["/v1/orgs"],
    onDone: onClose,
  });
  return (
    <Dialog title={t.inviteTitle} onClose={onClose}>
      <Form form={form} submit={t.invite} onCancel={onClose} why={whyNot("admin")}>
        <TextField form={form} name="email" label={t.email} type="email" hint={t.inviteHint} isFocused placeholder="grace@example.com" />
        <Choices label={t.role} value={form.values.value.role} options={roleOptions()} onChange={(role) => form.set("role", role as Role)} />
      </Form>
    </Dialog>
  );
}

function Invitations({ orgId }: { orgId: number }) {
  const list = useResource("/v1/orgs/{org_id}/invitations", { path: { org_id: orgId } }, { pollMs: 30_000 });
  const t = text.members;
  return (
    <Card title={t.invitations} isFlush>
      <Loaded of={list}>
        {(items) =>
          items.length === 0 ? (
            <Empty icon={<UserPlus size={20} />}>{t.noInvitations}</Empty>
          ) : (
            <Table
              label={t.invitations}
              rows={items}
              keyOf={(each) => each.id}
              columns={[
                { name: t.email, of: (each) => each.email },
                { name: text.orgCommon.role, of: (each) => text.roles.names[each.role as Role] ?? each.role },
                { name: text.orgCommon.expires, of: (each) => <Time at={each.expiresAt} /> },
                { name: text.orgCommon.actions, width: "70px", of: (each) => <Revoke invitation={each} orgId={orgId} /> },
              ]}
            />
          )
        }
      </Loaded>
    </Card>
  );
}

function Revoke({ invitation, orgId }: { invitation: Invitation; orgId: number }) {
  const t = text.members;
  const revoke = useAction(() => api.delete("/v1/orgs/{org_id}/invitations/{invitation_id}", { path: { org_id: orgId, invitation_id: invitation.id } }), {
    done: t.revoked,
    refreshes: ["/v1/orgs"],
  });
  return (
    <span class="row-tools">
      <Button kind="quiet" size="small" label={t.revoke(invitation.email)} why={whyNot("admin")} isBusy={revoke.isBusy} onClick={() => revoke.run()} icon={<UserX size={14} aria-hidden="true" />} />
    </span>
  );
}
