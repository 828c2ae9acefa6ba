/** Credentials of private image registries: stored, changed, deleted, never shown. */

import { Container, Pencil, Plus, Trash2 } from "lucide-preact";
import { useState } from "preact/hooks";
import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import type { Data, Item } from "../../api/types";
import { can, whyNot } from "../../lib/roles";
import { text } from "../../text";
import { ApiCall } from "../../ui/apicall";
import { Button } from "../../ui/button";
import { Confirm, Dialog } from "../../ui/dialog";
import { Card, Empty, Loaded } from "../../ui/feedback";
import { Form, TextField, useForm } from "../../ui/form";
import { Table } from "../../ui/table";
import { Time } from "../../ui/time";

type Registry = Item<Data<"/v1/registries">>;
const t = text.registries;
const REFRESHES = ["/v1/registries"];

export default function Registries() {
  const list = useResource("/v1/registries", {}, { pollMs: 60_000, isOn: can("member") });
  const [changed, setChanged] = useState<Registry | "new">();
  const [removed, setRemoved] = useState<Registry>();
  const add = (
    <Button size="small" kind="primary" why={whyNot("admin")} onClick={() => setChanged("new")} icon={<Plus size={14} aria-hidden="true" />}>
      {t.add}
    </Button>
  );
  return (
    <>
      <Card title={t.title} isFlush actions={add}>
        {can("member") ? (
          <Loaded of={list}>
            {(items) => (items.length === 0 ? <Empty icon={<Container size={20} />}>{t.empty}</Empty> : <RegistryTable items={items} onChange={setChanged} onRemove={setRemoved} />)}
          </Loaded>
        ) : (
          <Empty icon={<Container size={20} />}>
            {t.needsMember} {whyNot("member")}
          </Empty>
        )}
      </Card>
      {changed && <Credentials registry={changed === "new" ? undefined : changed} onClose={() => setChanged(undefined)} />}
      {removed && (
        <Confirm
          title={t.remove(removed.host)}
          button={t.remove(removed.host)}
          act={() => api.delete("/v1/registries/{registry_id}", { path: { registry_id: removed.id } })}
          onClose={() => setRemoved(undefined)}
          done={t.removed(removed.host)}
          refreshes={REFRESHES}
        >
          <p>{t.removeText}</p>
        </Confirm>
      )}
    </>
  );
}

interface RegistryTableProps {
  items: Registry[];
  onChange: (registry: Registry) => void;
  onRemove: (registry: Registry) => void;
}

function RegistryTable({ items, onChange, onRemove }: RegistryTableProps) {
  return (
    <Table
      label={t.title}
      rows={items}
      keyOf={(each) => each.id}
      columns={[
        { name: t.host, of: (each) => <strong class="breaks">{each.host}</strong>, sort: (each) => each.host },
        { name: t.username, of: (each) => <span class="breaks">{each.username}</span>, sort: (each) => each.username },
        { name: t.tokenHost, of: (each) => each.tokenHost || <span class="soft">–</span>, isHiddenOnPhone: true },
        { name: text.common.updated, of: (each) => <Time at={each.updatedAt} />, sort: (each) => each.updatedAt },
        {
          name: text.orgCommon.actions,
          width: "100px",
          of: (each) => (
            <span class="row-tools">
              <Button kind="quiet" size="small" label={t.change(each.host)} why={whyNot("admin")} onClick={() => onChange(each)} icon={<Pencil size={14} aria-hidden="true" />} />
              <Button kind="quiet" size="small" label={t.remove(each.host)} why={whyNot("admin")} onClick={() => onRemove(each)} icon={<Trash2 size={14} aria-hidden="true" />} />
            </span>
          ),
        },
      ]}
    />
  );
}

/** New credentials, or other ones for a registry: its secret is not read back, so an empty field keeps it. */
function Credentials({ registry, onClose }: { registry: Registry | undefined; onClose: () => void }) {
  const form = useForm(
    { host: registry?.host ?? "", username: registry?.username ?? "", secret: "", tokenHost: registry?.tokenHost ?? "" },
    ({ host, username, secret, tokenHost }) =>
      registry
        ? api.patch("/v1/registries/{registry_id}", { path: { registry_id: registry.id }, body: { username, tokenHost, ...(secret && { secret }) } })
        : api.post("/v1/registries", { body: { host, username, secret, tokenHost } }),
    { done: ({ host }) => (registry ? t.changed(host) : t.added(host)), refreshes: REFRESHES, onDone: onClose },
  );
  const { host, username, tokenHost } = form.values.value;
  return (
    <Dialog title={registry ? t.changeTitle(registry.host) : t.addTitle} onClose={onClose}>
      <Form form={form} submit={registry ? text.common.save : t.add} onCancel={onClose} why={whyNot("admin")}>
        {!registry && <TextField form={form} name="host" label={t.host} hint={t.hostHint} placeholder="ghcr.io" isCode isFocused clean={(given) => given.trim().toLowerCase()} />}
        <TextField form={form} name="username" label={t.username} isFocused={!!registry} />
        <TextField form={form} name="secret" label={t.secret} type="password" hint={registry ? t.secretKept : t.secretHint} />
        <TextField form={form} name="tokenHost" label={t.tokenHost} hint={t.tokenHostHint} isCode isOptional />
        {!registry && <ApiCall method="POST" path="/v1/registries" body={{ host, username, secret: "…", ...(tokenHost && { tokenHost }) }} />}
      </Form>
    </Dialog>
  );
}
