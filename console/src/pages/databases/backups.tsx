/** Backups of a database: the list, one more, the schedule, and the restore. */

import { Archive, Plus } from "lucide-preact";
import { useState } from "preact/hooks";
import { useAction } from "../../api/actions";
import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import type { Body, Data } from "../../api/types";
import { bytes, duration } from "../../lib/format";
import { whyNot } from "../../lib/roles";
import { text } from "../../text";
import { Button } from "../../ui/button";
import { Card, Empty, Loaded, SkeletonRows } from "../../ui/feedback";
import { Choices, Form, SwitchField, TextField, useForm } from "../../ui/form";
import { Status } from "../../ui/status";
import { Table } from "../../ui/table";
import { Time } from "../../ui/time";
import { NeedsPaid } from "./needs";
import { RestoreDialog, type Backup } from "./restore";
import type { TabProps } from "./state";
import { useIsPaid } from "./tiers";

const t = text.database.backups;
type Config = NonNullable<Data<"/v1/databases/{name}/backups">["config"]>;

export default function Backups({ name, database }: TabProps) {
  const list = useResource("/v1/databases/{name}/backups", { path: { name } }, { pollMs: 5_000 });
  const [chosen, setChosen] = useState<Backup>();
  const make = useAction(() => api.post("/v1/databases/{name}/backups", { path: { name } }), { done: t.made, refreshes: [`/v1/databases/${name}`] });
  const isPaid = useIsPaid(database);
  const isRunning = database.status === "running";
  const button = (
    <Button kind="primary" size="small" why={whyNot("member") ?? (isRunning ? undefined : text.database.query.notRunning)} isBusy={make.isBusy} onClick={() => make.run()} icon={<Plus size={14} aria-hidden="true" />}>
      {t.make}
    </Button>
  );
  if (isPaid === false && list.data?.items.length === 0) return <NeedsPaid name={name} />;
  return (
    <div class="stack side-cards">
      <Card title={t.title} actions={button} isFlush>
        <Loaded of={list} skeleton={<SkeletonRows rows={3} />}>
          {({ items }) => (items.length === 0 ? <Empty icon={<Archive size={20} />}>{t.empty}</Empty> : <BackupTable items={items} onRestore={setChosen} />)}
        </Loaded>
      </Card>
      <Loaded of={list}>{({ config }) => <Schedule name={name} config={config} />}</Loaded>
      {chosen && <RestoreDialog name={name} backup={chosen} onClose={() => setChosen(undefined)} />}
    </div>
  );
}

function BackupTable({ items, onRestore }: { items: Backup[]; onRestore: (backup: Backup) => void }) {
  const why = whyNot("admin");
  const took = ({ startedAt, completedAt }: Backup) => (completedAt ? duration(Date.parse(completedAt) - Date.parse(startedAt)) : "–");
  return (
    <Table
      label={t.title}
      rows={items}
      keyOf={(each) => each.name}
      idOf={(each) => each.name}
      columns={[
        { name: text.common.name, of: (each) => <code title={each.reason ?? ""}>{each.name}</code> },
        { name: text.common.status, of: (each) => <Status of={each.status === "running" ? "in_progress" : each.status} word={each.status === "running" ? text.status.running : undefined} /> },
        { name: t.started, of: (each) => <Time at={each.startedAt} />, sort: (each) => each.startedAt },
        { name: t.took, of: took, isNumber: true, isHiddenOnPhone: true },
        { name: t.size, of: (each) => (each.totalSize === null ? "–" : bytes(each.totalSize)), sort: (each) => each.totalSize, isNumber: true },
        { name: t.method, of: (each) => `${each.method}, ${each.cause}`, isHiddenOnPhone: true },
        { name: t.verified, of: (each) => <Time at={each.verifiedAt} />, isHiddenOnPhone: true },
        {
          name: t.restore,
          of: (each) => (
            <span class="row-tools">
              <Button size="small" why={why} isDisabled={each.status !== "completed"} onClick={() => onRestore(each)}>
                {t.restore}
              </Button>
            </span>
          ),
          isNumber: true,
        },
      ]}
    />
  );
}

function Schedule({ name, config }: { name: string; config: Config | null }) {
  const initial = {
    enabled: config?.enabled ?? false,
    method: config?.method ?? "logical",
    cronExpression: config?.cronExpression ?? "0 3 * * *",
    retentionPeriod: config?.retentionPeriod ?? "7d",
    backupsToKeep: config?.backupsToKeep ? String(config.backupsToKeep) : "",
  };
  const form = useForm(
    initial,
    ({ backupsToKeep, ...values }) => {
      const body = { ...values, ...(backupsToKeep && { backupsToKeep: Number(backupsToKeep) }) };
      return api.patch("/v1/databases/{name}/backups", { path: { name }, body: body as Body<"/v1/databases/{name}/backups", "patch"> });
    },
    { done: t.saved, refreshes: [`/v1/databases/${name}`] },
  );
  const values = form.values.value;
  return (
    <Card title={t.schedule}>
      <Form form={form} submit={t.save} why={whyNot("admin")}>
        <SwitchField form={form} name="enabled" label={t.enabled} />
        {values.enabled && (
          <>
            <Choices
              label={t.method}
              value={values.method}
              onChange={(method) => form.set("method", method)}
              options={[
                { value: "logical", label: t.logical, hint: t.logicalHint },
                { value: "physical", label: t.physical, hint: t.physicalHint },
              ]}
            />
            {config && values.method !== config.method && <p class="soft small">{t.switchNote}</p>}
            <div class="fields">
              <TextField form={form} name="cronExpression" label={t.schedule} hint={t.scheduleHint} isCode />
              <TextField form={form} name="retentionPeriod" label={t.retention} hint={t.retentionHint} isCode />
              <TextField form={form} name="backupsToKeep" label={t.keep} type="number" isOptional />
            </div>
          </>
        )}
      </Form>
    </Card>
  );
}
