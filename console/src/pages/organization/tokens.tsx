/** API tokens: created, shown once, revoked. */

import { KeyRound, Plus, Trash2 } from "lucide-preact";
import { useState } from "preact/hooks";
import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import type { Data, Item } from "../../api/types";
import { can, role as myRole, whyNot, type Role } from "../../lib/roles";
import { text } from "../../text";
import { Button } from "../../ui/button";
import { CodeBlock } from "../../ui/copy";
import { Confirm, Dialog } from "../../ui/dialog";
import { Card, Empty, Loaded, Notice } from "../../ui/feedback";
import { Form, SelectField, TextField, useForm } from "../../ui/form";
import { Table } from "../../ui/table";
import { Time } from "../../ui/time";

type Token = Item<Data<"/v1/api-tokens">>;
const ROLES: Role[] = ["viewer", "member", "admin", "owner"];

export default function Tokens() {
  const list = useResource("/v1/api-tokens", {}, { pollMs: 30_000, isOn: can("admin") });
  const [isCreating, setCreating] = useState(false);
  const [revoked, setRevoked] = useState<Token>();
  const t = text.tokens;
  return (
    <>
      <Card
        title={t.title}
        isFlush
        actions={
          <Button size="small" kind="primary" why={whyNot("admin")} onClick={() => setCreating(true)} icon={<Plus size={14} aria-hidden="true" />}>
            {t.create}
          </Button>
        }
      >
        {can("admin") ? (
          <Loaded of={list}>
            {(items) => (items.length === 0 ? <Empty icon={<KeyRound size={20} />}>{t.empty}</Empty> : <TokenTable items={items} onRevoke={setRevoked} />)}
          </Loaded>
        ) : (
          <Empty icon={<KeyRound size={20} />}>
            {t.needsAdmin} {whyNot("admin")}
          </Empty>
        )}
      </Card>
      {isCreating && <CreateToken onClose={() => setCreating(false)} />}
      {revoked && (
        <Confirm
          title={t.revoke(revoked.name)}
          button={t.revoke(revoked.name)}
          act={() => api.delete("/v1/api-tokens/{token_id}", { path: { token_id: revoked.id } })}
          onClose={() => setRevoked(undefined)}
          done={t.revoked(revoked.name)}
          refreshes={["/v1/api-tokens"]}
        >
          <p>{t.revokeText}</p>
        </Confirm>
      )}
    </>
  );
}

function TokenTable({ items, onRevoke }: { items: Token[]; onRevoke: (token: Token) => void }) {
  const t = text.tokens;
  return (
    <Table
      label={t.title}
      rows={items}
      keyOf={(each) => each.id}
      columns={[
        { name: t.name, of: (each) => <strong class="cut">{each.name}</strong>, sort: (each) => each.name },
        { name: t.preview, of: (each) => <code class="soft">{each.preview}</code>, isHiddenOnPhone: true },
        { name: text.orgCommon.role, of: (each) => text.roles.names[each.role as Role] ?? each.role, sort: (each) => ROLES.indexOf(each.role as Role) },
        { name: t.lastUsed, of: (each) => <Time at={each.lastUsedAt} />, sort: (each) => each.lastUsedAt },
        {
          name: text.orgCommon.expires,
          sort: (each) => each.expiresAt,
          of: (each) => (each.expiresAt === null ? <span class="soft">{t.noEnd}</span> : Date.parse(each.expiresAt) < Date.now() ? t.expired : <Time at={each.expiresAt} />),
        },
        {
          name: text.orgCommon.actions,
          width: "70px",
          of: (each) => (
            <span class="row-tools">
              <Button kind="quiet" size="small" label={t.revoke(each.name)} why={whyNot("admin")} onClick={() => onRevoke(each)} icon={<Trash2 size={14} aria-hidden="true" />} />
            </span>
          ),
        },
      ]}
    />
  );
}

/** The value of the new token exists in this dialog only. */
function CreateToken({ onClose }: { onClose: () => void }) {
  const t = text.tokens;
  const [made, setMade] = useState<string>();
  const form = useForm(
    { name: "", role: "member" as string, expiresInDays: "90" },
    ({ name, role, expiresInDays }) => api.post("/v1/api-tokens", { body: { name, role: role as Role, ...(expiresInDays && { expiresInDays: Number(expiresInDays) }) } }),
    { refreshes: ["/v1/api-tokens"], onDone: (created) => setMade(created.token) },
  );
  if (made !== undefined) {
    return (
      <Dialog
        title={t.onceTitle}
        onClose={onClose}
        foot={
          <Button kind="primary" onClick={onClose}>
            {t.done}
          </Button>
        }
      >
        <div class="token-once">
          <Notice kind="warn">{t.once}</Notice>
          <CodeBlock code={made} wraps label={t.preview} />
        </div>
      </Dialog>
    );
  }
  const allowed = ROLES.slice(0, ROLES.indexOf(myRole.value) + 1);
  return (
    <Dialog title={t.createTitle} onClose={onClose}>
      <Form form={form} submit={t.create} onCancel={onClose} why={whyNot("admin")}>
        <TextField form={form} name="name" label={t.name} hint={t.nameHint} isFocused placeholder="CI" />
        <div class="fields">
          <SelectField form={form} name="role" label={t.role} hint={t.roleHint} options={allowed.map((value) => ({ value, label: text.roles.names[value] }))} />
          <SelectField form={form} name="expiresInDays" label={t.expiry} options={["7", "30", "90", "365", ""].map((value) => ({ value, label: t.expiries[value]! }))} />
        </div>
      </Form>
    </Dialog>
  );
}
