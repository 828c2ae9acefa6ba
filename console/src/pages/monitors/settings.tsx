/** Settings of a monitor: its fields, the status page, and its end. */

import { ExternalLink } from "lucide-preact";
import { useLocation } from "preact-iso";
import { useState } from "preact/hooks";
import { useAction } from "../../api/actions";
import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import { organizationId } from "../../api/session";
import type { Body } from "../../api/types";
import { whyNot } from "../../lib/roles";
import { text } from "../../text";
import { Button, ButtonLink } from "../../ui/button";
import { ConfirmDanger } from "../../ui/dialog";
import { Card } from "../../ui/feedback";
import { Form, Switch, useForm } from "../../ui/form";
import { bodyOf, MonitorFields, type MonitorValues } from "./form";
import type { Monitor, TabProps } from "./monitor";
import { StatusPreview } from "./preview";

const t = text.monitor;

function valuesOf(monitor: Monitor): MonitorValues {
  return {
    name: monitor.name ?? "", url: monitor.url ?? "", interval: String(monitor.interval ?? 60), timeout: String(monitor.timeout ?? 10_000),
    retries: String(monitor.retries ?? 1), httpMethod: monitor.httpMethod ?? "GET", statusCodes: (monitor.statusCodes ?? []).join(", "),
    keyword: monitor.keyword ?? "", headers: (monitor.headers ?? []).map(({ name, value }) => ({ name, value })), httpBody: monitor.httpBody ?? "",
    expireCertNotify: monitor.expireCertNotify ?? false, ignoreTlsError: monitor.ignoreTlsError ?? false, public: monitor.public,
  };
}

export default function Settings({ monitor }: TabProps) {
  const path = { monitor_id: monitor.id };
  const form = useForm(
    valuesOf(monitor),
    (values) => {
      const { public: _, ...body } = bodyOf(values, false);
      return api.patch("/v1/monitors/{monitor_id}", { path, body: body as Body<"/v1/monitors/{monitor_id}", "patch"> });
    },
    { done: t.saved, refreshes: ["/v1/monitors"] },
  );
  return (
    <div class="settings-grid">
      <StatusPage monitor={monitor} />
      <Card title={t.check}>
        <Form form={form} submit={t.save} why={whyNot("member")}>
          <MonitorFields form={form} isNew={false} />
        </Form>
      </Card>
      <Danger monitor={monitor} />
    </div>
  );
}

function StatusPage({ monitor }: { monitor: Monitor }) {
  const id = Number(organizationId.value);
  const organization = useResource("/v1/orgs/{org_id}", { path: { org_id: id } }, { isOn: id > 0 });
  const change = useAction((isPublic: boolean) => api.patch("/v1/monitors/{monitor_id}", { path: { monitor_id: monitor.id }, body: { public: isPublic } }), {
    done: t.switched,
    refreshes: ["/v1/monitors"],
  });
  const link = organization.data && monitor.public && (
    <ButtonLink size="small" href={`/status/${organization.data.slug}`} isExternal icon={<ExternalLink size={14} aria-hidden="true" />}>
      {t.statusPageOpen}
    </ButtonLink>
  );
  return (
    <Card title={t.statusPage} actions={link}>
      <div class="stack">
        <Switch label={t.isPublic} hint={t.isPublicHint} isOn={monitor.public} why={whyNot("member")} onChange={(isOn) => void change.run(isOn)} />
        <div class="stack tight">
          <span class="soft small">{t.preview}</span>
          <StatusPreview monitor={monitor} />
        </div>
      </div>
    </Card>
  );
}

function Danger({ monitor }: { monitor: Monitor }) {
  const { route } = useLocation();
  const [isAsking, setAsking] = useState(false);
  const name = monitor.name ?? String(monitor.id);
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
          act={() => api.delete("/v1/monitors/{monitor_id}", { path: { monitor_id: monitor.id } })}
          onClose={() => setAsking(false)}
          done={t.deleted(name)}
          refreshes={["/v1/usage"]}
          onDone={() => route("/monitors")}
        >
          <p>{t.deleteText}</p>
        </ConfirmDanger>
      )}
    </Card>
  );
}
