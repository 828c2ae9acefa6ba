/** The editor of one alert rule. */

import { api } from "../../api/client";
import type { Body } from "../../api/types";
import { text } from "../../text";
import { Dialog } from "../../ui/dialog";
import { Form, SelectField, SwitchField, TextField, useForm } from "../../ui/form";
import type { Alert } from "./alerts";

interface Values {
  metric: string;
  condition: string;
  threshold: string;
  duration: string;
  severity: string;
  email: boolean;
  slack: boolean;
  webhook: boolean;
  slackWebhook: string;
  webhookUrl: string;
}

const t = text.monitor.alerts;
/** What most people want of a metric. */
const USUAL: Record<string, Partial<Values>> = {
  status: { condition: "eq", threshold: "0", duration: "1" },
  response_time: { condition: "gt", threshold: "1000", duration: "5" },
  status_code: { condition: "neq", threshold: "200", duration: "1" },
  error_rate: { condition: "gt", threshold: "10", duration: "10" },
  ssl_expiry: { condition: "lt", threshold: "14", duration: "1" },
};

function valuesOf(alert: Alert | undefined): Values {
  const on = alert?.notifications;
  return {
    metric: alert?.metric ?? "status", condition: alert?.condition ?? "eq", threshold: String(alert?.threshold ?? 0), duration: String(alert?.duration ?? 1),
    severity: alert?.severity ?? "critical", email: on?.email ?? true, slack: on?.slack ?? false, webhook: on?.webhook ?? false, slackWebhook: "", webhookUrl: "",
  };
}

function bodyOf(values: Values): Body<"/v1/monitors/{monitor_id}/alerts", "post"> {
  const { email, slack, webhook, slackWebhook, webhookUrl, threshold, duration, ...rest } = values;
  const urls = { ...(slack && slackWebhook && { slackWebhook }), ...(webhook && webhookUrl && { webhookUrl }) };
  return { ...rest, threshold: Number(threshold), duration: Number(duration), notifications: { email, slack, webhook }, ...urls } as Body<"/v1/monitors/{monitor_id}/alerts", "post">;
}

const optionsOf = (words: Record<string, string>) => Object.entries(words).map(([value, label]) => ({ value, label }));

export function AlertDialog({ monitorId, alert, onClose }: { monitorId: number; alert: Alert | undefined; onClose: () => void }) {
  const form = useForm<Values, unknown>(
    valuesOf(alert),
    (values) => {
      const { metric, ...rest } = bodyOf(values);
      if (!alert) return api.post("/v1/monitors/{monitor_id}/alerts", { path: { monitor_id: monitorId }, body: { metric, ...rest } });
      return api.patch("/v1/alerts/{alert_id}", { path: { alert_id: alert.id }, body: rest });
    },
    { done: t.saved, refreshes: [`/v1/monitors/${monitorId}`], onDone: onClose },
  );
  const values = form.values.value;
  const chooseMetric = (metric: string) => (form.set("metric", metric), Object.assign(form.values, { value: { ...form.values.peek(), ...USUAL[metric] } }));
  return (
    <Dialog title={alert ? t.edit : t.add} onClose={onClose} isLarge>
      <Form form={form} submit={t.save} onCancel={onClose}>
        <div class="fields">
          {alert ? (
            <div class="field">
              <span class="field-label">{t.metric}</span>
              <span>{t.metrics[alert.metric]}</span>
            </div>
          ) : (
            <SelectField form={{ ...form, set: (_, value) => chooseMetric(String(value)) }} name="metric" label={t.metric} options={optionsOf(t.metrics)} />
          )}
          <SelectField form={form} name="condition" label={t.condition} options={optionsOf(t.conditions)} />
          <TextField form={form} name="threshold" label={t.threshold} type="number" />
          <TextField form={form} name="duration" label={t.duration} type="number" />
          <SelectField form={form} name="severity" label={t.severity} options={optionsOf(t.severities)} />
        </div>
        <div class="stack">
          <h3>{t.channels}</h3>
          <SwitchField form={form} name="email" label={t.email} />
          <SwitchField form={form} name="slack" label={t.slack} />
          {values.slack && <TextField form={form} name="slackWebhook" label={t.slackUrl} type="url" hint={alert?.hasSlackWebhook ? t.keepUrl : undefined} isCode />}
          <SwitchField form={form} name="webhook" label={t.webhook} />
          {values.webhook && <TextField form={form} name="webhookUrl" label={t.webhookUrl} type="url" hint={alert?.hasWebhookUrl ? t.keepUrl : undefined} isCode />}
        </div>
      </Form>
    </Dialog>
  );
}
