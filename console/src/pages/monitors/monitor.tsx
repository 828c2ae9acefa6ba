/** One monitor: its head, its tabs, and the tab that is open. */

import { ExternalLink, Pause, Play } from "lucide-preact";
import type { AnyComponent } from "preact";
import { lazy } from "preact-iso";
import { useAction } from "../../api/actions";
import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import type { Data } from "../../api/types";
import { NotFound } from "../../frame/notfound";
import { PageHead } from "../../frame/page";
import { whyNot } from "../../lib/roles";
import { text } from "../../text";
import { Button } from "../../ui/button";
import { Loaded, Notice, Skeleton, SkeletonRows } from "../../ui/feedback";
import { Status } from "../../ui/status";
import { Tabs } from "../../ui/tabs";
import { stateOf } from "../lists/monitors";

export type Monitor = Data<"/v1/monitors/{monitor_id}">;
export interface TabProps {
  monitor: Monitor;
}

const t = text.monitor;
const TABS: { key: string; label: string; component: AnyComponent<TabProps> }[] = [
  { key: "", label: t.tabs.overview, component: lazy(() => import("./overview")) },
  { key: "alerts", label: t.tabs.alerts, component: lazy(() => import("./alerts")) },
  { key: "settings", label: t.tabs.settings, component: lazy(() => import("./settings")) },
];

export default function MonitorPage({ id, tab = "" }: { id: string; tab?: string }) {
  const isId = /^[1-9]\d{0,14}$/.test(id);
  const monitor = useResource("/v1/monitors/{monitor_id}", { path: { monitor_id: Number(id) } }, { pollMs: 5_000, isOn: isId });
  const open = TABS.find((each) => each.key === tab);
  if (!open || !isId || monitor.error?.status === 404) return <NotFound />;
  const Open = open.component;
  const data = monitor.data;
  return (
    <>
      <PageHead
        title={data?.name ?? `#${id}`}
        crumbs={[{ label: text.monitors.title, href: "/monitors" }]}
        status={data ? <Status of={stateOf(data)} /> : <Skeleton width={70} />}
        subtitle={
          data?.url ? (
            <a href={data.url} target="_blank" rel="noopener noreferrer" class="row small">
              <span class="cut">{data.url}</span> <ExternalLink size={13} aria-hidden="true" />
            </a>
          ) : (
            <Skeleton width={220} height={18} />
          )
        }
        actions={data && <PauseButton monitor={data} />}
      />
      <Tabs label={data?.name ?? id} tabs={TABS.map(({ key, label }) => ({ href: `/monitors/${id}${key && `/${key}`}`, label }))} />
      <Loaded of={monitor} skeleton={<SkeletonRows rows={4} />}>
        {(found) => (
          <div class="stack">
            {found.missedChecks > 0 && <Notice kind="warn">{t.missed(found.missedChecks)}</Notice>}
            <Open monitor={found} key={found.id} />
          </div>
        )}
      </Loaded>
    </>
  );
}

function PauseButton({ monitor }: { monitor: Monitor }) {
  const path = { monitor_id: monitor.id };
  const isPaused = monitor.status === "pause";
  const change = useAction(() => (isPaused ? api.post("/v1/monitors/{monitor_id}/resume", { path }) : api.post("/v1/monitors/{monitor_id}/pause", { path })), {
    done: isPaused ? t.resumed : t.paused,
    refreshes: ["/v1/monitors"],
  });
  const Icon = isPaused ? Play : Pause;
  return (
    <Button why={whyNot("member")} isBusy={change.isBusy} onClick={() => change.run()} icon={<Icon size={15} aria-hidden="true" />}>
      {isPaused ? t.resume : t.pause}
    </Button>
  );
}
