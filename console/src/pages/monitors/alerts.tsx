/** Alert rules of a monitor: the list, the editor, a test. */

import { BellRing, Check, Pencil, Plus, Send, Trash2 } from "lucide-preact";
import { useState } from "preact/hooks";
import { useAction } from "../../api/actions";
import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import type { Data, Item } from "../../api/types";
import { whyNot } from "../../lib/roles";
import { text } from "../../text";
import { Button } from "../../ui/button";
import { Confirm } from "../../ui/dialog";
import { Card, Empty, Loaded } from "../../ui/feedback";
import { Status } from "../../ui/status";
import { Time } from "../../ui/time";
import { AlertDialog } from "./alert";
import type { TabProps } from "./monitor";

export type Alert = Item<Data<"/v1/monitors/{monitor_id}/alerts">>;

const t = text.monitor.alerts;

export function wordsOf({ metric, condition, threshold, duration }: Alert): string {
  const time = duration && duration > 1 ? ` ${t.forMinutes(duration)}` : "";
  if (metric === "status" && condition !== "gt" && condition !== "lt") return `${(threshold === 0) === (condition === "eq") ? t.isDown : t.isUp}${time}`;
  return `${t.short[metric] ?? metric} ${t.conditions[condition] ?? condition} ${threshold}${t.units[metric] ?? ""}${time}`;
}

export default function Alerts({ monitor }: TabProps) {
  const list = useResource("/v1/monitors/{monitor_id}/alerts", { path: { monitor_id: monitor.id } }, { pollMs: 10_000 });
  const [edited, setEdited] = useState<Alert | "new">();
  const add = (
    <Button kind="primary" size="small" why={whyNot("member")} onClick={() => setEdited("new")} icon={<Plus size={14} aria-hidden="true" />}>
      {t.add}
    </Button>
  );
  return (
    <Card title={t.title} actions={list.data && list.data.length > 0 && add} isFlush>
      <Loaded of={list}>
        {(items) =>
          items.length === 0 ? (
            <Empty icon={<BellRing size={20} />} action={add}>
              {t.empty}
            </Empty>
          ) : (
            <ul>
              {items.map((each) => (
                <AlertRow key={each.id} alert={each} refreshes={[`/v1/monitors/${monitor.id}`]} onEdit={() => setEdited(each)} />
              ))}
            </ul>
          )
        }
      </Loaded>
      {edited && <AlertDialog monitorId={monitor.id} alert={edited === "new" ? undefined : edited} onClose={() => setEdited(undefined)} />}
    </Card>
  );
}

function AlertRow({ alert, refreshes, onEdit }: { alert: Alert; refreshes: string[]; onEdit: () => void }) {
  const [isAsking, setAsking] = useState(false);
  const path = { alert_id: alert.id };
  const why = whyNot("member");
  const toggle = useAction(() => api.patch("/v1/alerts/{alert_id}", { path, body: { enabled: !alert.enabled } }), { done: t.toggled, refreshes });
  const acknowledge = useAction(() => api.patch("/v1/alerts/{alert_id}", { path, body: { acknowledged: true } }), { done: t.acknowledged, refreshes });
  const test = useAction(() => api.post("/v1/alerts/{alert_id}/test", { path, query: { wait: 10 } }), {
    done: ({ deliveries }) => (deliveries.length === 0 ? t.testedNone : t.tested(deliveries.map((each) => `${each.channel} ${each.status}`).join(", "))),
    refreshes,
  });
  const isTriggered = alert.status === "triggered";
  return (
    <li class="alert-row">
      <div class="stack tight">
        <div class="row wrap">
          <Status of={!alert.enabled ? "disabled" : isTriggered ? "triggered" : "ready"} word={alert.enabled ? (t.states[alert.status ?? ""] ?? alert.status ?? undefined) : undefined} />
          <strong>{wordsOf(alert)}</strong>
          <span class="tag">{t.severities[alert.severity ?? "warning"]}</span>
          {alert.isFlapping && <span class="tag">{text.monitor.flapping}</span>}
          {isTriggered && alert.acknowledged && <span class="tag accent">{t.acknowledged}</span>}
        </div>
        <p class="soft small">
          <Channels alert={alert} /> · {t.lastTriggered}: <Time at={alert.lastTriggered} />
        </p>
        <Deliveries alert={alert} />
      </div>
      <div class="row wrap">
        {isTriggered && !alert.acknowledged && (
          <Button size="small" why={why} isBusy={acknowledge.isBusy} onClick={() => acknowledge.run()} icon={<Check size={14} aria-hidden="true" />}>
            {t.acknowledge}
          </Button>
        )}
        <Button size="small" why={why} isBusy={test.isBusy} onClick={() => test.run()} icon={<Send size={14} aria-hidden="true" />}>
          {t.test}
        </Button>
        <button type="button" role="switch" class="switch" aria-checked={alert.enabled} aria-label={`${wordsOf(alert)}: ${t.on}`} title={why} disabled={why !== undefined || toggle.isBusy} onClick={() => void toggle.run()} />
        <Button kind="quiet" size="small" label={t.edit} why={why} onClick={onEdit} icon={<Pencil size={14} aria-hidden="true" />} />
        <Button kind="quiet" size="small" label={t.delete} why={why} onClick={() => setAsking(true)} icon={<Trash2 size={14} aria-hidden="true" />} />
      </div>
      {isAsking && (
        <Confirm title={t.delete} button={t.delete} act={() => api.delete("/v1/alerts/{alert_id}", { path })} onClose={() => setAsking(false)} done={t.deleted} refreshes={refreshes}>
          <p>{wordsOf(alert)}</p>
          <p class="soft">{t.deleteText}</p>
        </Confirm>
      )}
    </li>
  );
}

function Channels({ alert: { notifications } }: { alert: Alert }) {
  const on = ([["email", t.email], ["slack", t.slack], ["webhook", t.webhook]] as const).filter(([key]) => notifications?.[key]).map(([, label]) => label);
  return <>{on.length > 0 ? on.join(", ") : t.testedNone}</>;
}

/** The last notice of each channel, and why a channel is not used any more. */
function Deliveries({ alert: { deliveries, disabled } }: { alert: Alert }) {
  const stopped = Object.entries(disabled ?? {}).filter(([, reason]) => reason);
  if (deliveries.length === 0 && stopped.length === 0) return null;
  return (
    <p class="soft small breaks">
      {deliveries.map((each) => (
        <span key={each.channel}>
          {`${each.channel}: ${each.kind}, ${each.status} `}
          <Time at={each.at} />
          {each.lastError && ` (${each.lastError})`}{" "}
        </span>
      ))}
      {stopped.map(([channel, reason]) => (
        <span key={channel} class="rule-problem">{`${channel}: ${reason} `}</span>
      ))}
    </p>
  );
}
