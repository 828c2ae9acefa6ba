/** Settings of a database: tier, password, and its end. */

import { useLocation } from "preact-iso";
import { useState } from "preact/hooks";
import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import { whyNot } from "../../lib/roles";
import { text } from "../../text";
import { Button } from "../../ui/button";
import { Confirm, ConfirmDanger } from "../../ui/dialog";
import { Card, Loaded } from "../../ui/feedback";
import { Choices, Form, SwitchField, useForm } from "../../ui/form";
import { isBusy, type Database, type TabProps, type Tier } from "./state";
import { tierOptions } from "./tiers";

const t = text.database.settings;

export default function Settings({ database, name }: TabProps) {
  const tiers = useResource("/v1/tiers", {});
  return (
    <div class="settings-grid">
      <Card title={t.tierTitle}>
        <Loaded of={tiers}>{(data) => <ChangeTier key={database.instanceType ?? ""} database={database} name={name} tiers={data} />}</Loaded>
      </Card>
      <Password name={name} isBlocked={isBusy(database)} />
      <Danger name={name} />
    </div>
  );
}

function ChangeTier({ database, name, tiers }: { database: Database; name: string; tiers: Tier[] }) {
  const current = database.instanceType ?? "";
  const form = useForm(
    { instanceType: current, confirmDowngradeToFree: false },
    (values) => api.post("/v1/databases/{name}/change-tier", { path: { name }, body: { ...values, expectedCurrentTier: current } }),
    { done: t.tierDone, refreshes: ["/v1/databases"] },
  );
  const { instanceType } = form.values.value;
  const isFree = tiers.find(({ key }) => key === instanceType)?.paid === false && tiers.find(({ key }) => key === current)?.paid === true;
  return (
    <Form form={form} submit={t.tierButton} why={whyNot("admin") ?? (instanceType === current ? t.same : undefined)}>
      <p class="soft">{t.tierText}</p>
      <Choices label={text.database.tier} value={instanceType} onChange={(key) => form.set("instanceType", key)} options={tierOptions(tiers)} />
      {isFree && <SwitchField form={form} name="confirmDowngradeToFree" label={t.toFree} />}
    </Form>
  );
}

function Password({ name, isBlocked }: { name: string; isBlocked: boolean }) {
  const [isAsking, setAsking] = useState(false);
  const why = whyNot("admin") ?? (isBlocked ? text.database.updatingNotice : undefined);
  return (
    <Card title={t.rotateTitle}>
      <div class="row between wrap">
        <p class="soft grow">{t.rotateText}</p>
        <Button why={why} onClick={() => setAsking(true)}>
          {t.rotate}
        </Button>
      </div>
      {isAsking && (
        <Confirm
          title={t.rotate}
          button={t.rotate}
          act={() => api.post("/v1/databases/{name}/rotate-password", { path: { name } })}
          onClose={() => setAsking(false)}
          done={t.rotated}
          refreshes={[`/v1/databases/${name}`]}
        >
          <p>{t.rotateText}</p>
        </Confirm>
      )}
    </Card>
  );
}

function Danger({ name }: { name: string }) {
  const { route } = useLocation();
  const [isAsking, setAsking] = useState(false);
  return (
    <Card title={t.danger} isDanger>
      <div class="row between wrap">
        <p class="soft grow">{t.deleteText}</p>
        <Button kind="danger" why={whyNot("member")} onClick={() => setAsking(true)}>
          {t.delete}
        </Button>
      </div>
      {isAsking && (
        <ConfirmDanger
          title={t.delete}
          button={`${t.delete} ${name}`}
          name={name}
          act={() => api.delete("/v1/databases/{name}", { path: { name } })}
          onClose={() => setAsking(false)}
          done={t.deleted(name)}
          refreshes={["/v1/databases?", "/v1/usage"]}
          onDone={() => route("/databases")}
        >
          <p>{t.deleteText}</p>
        </ConfirmDanger>
      )}
    </Card>
  );
}
