/** The list of monitors, with a bar for each of the last 24 hours. */

import { Activity } from "lucide-preact";
import { useResource } from "../../api/resource";
import type { Data, Item } from "../../api/types";
import { PageHead } from "../../frame/page";
import { absolute, hostOf, percent } from "../../lib/format";
import { hasPage } from "../../pages";
import { text } from "../../text";
import { Bars, type Bar } from "../../ui/chart/sparkline";
import { CodeBlock } from "../../ui/copy";
import { Empty, Loaded } from "../../ui/feedback";
import { Status } from "../../ui/status";
import { Table } from "../../ui/table";
import { Time } from "../../ui/time";
import { CreateButton } from "./create";

export type MonitorItem = Item<Data<"/v1/monitors">>;

/** A paused monitor has no state of its target. */
export function stateOf(monitor: MonitorItem): string {
  return monitor.status === "pause" ? "paused" : (monitor.lastHeartbeat?.status ?? "pending");
}

export function HourBars({ id }: { id: number }) {
  const hours = useResource("/v1/monitors/{monitor_id}/aggregate", { path: { monitor_id: id }, query: { hours: 24 } }, { pollMs: 60_000 });
  const bars: Bar[] = (hours.data?.buckets ?? Array.from({ length: 24 }, () => null)).map((bucket) => {
    if (!bucket || bucket.upCount + bucket.downCount === 0) return { look: "none", title: bucket ? absolute(bucket.bucket) : "" };
    const look = bucket.downCount === 0 ? "ok" : bucket.upCount === 0 ? "bad" : "warn";
    return { look, title: `${absolute(bucket.bucket)}: ${bucket.upCount} ${text.status.up}, ${bucket.downCount} ${text.status.down}` };
  });
  return <Bars bars={bars} label={`${text.monitors.bars}: ${hours.data?.uptimePercent ?? "–"} %`} />;
}

/** The worst state of all monitors that are not paused. */
function Overall({ items }: { items: MonitorItem[] }) {
  const down = items.filter((each) => stateOf(each).toLowerCase() === "down").length;
  return down > 0 ? <Status of="down" word={text.monitor.downOf(down)} /> : <Status of="up" word={text.monitor.allUp} />;
}

export default function Monitors() {
  const list = useResource("/v1/monitors", {}, { pollMs: 10_000 });
  const create = <CreateButton href="/monitors/new" label={text.monitors.create} />;
  return (
    <>
      <PageHead title={text.monitors.title} count={list.data?.length} status={list.data && list.data.length > 0 && <Overall items={list.data} />} actions={create} />
      <Loaded of={list}>
        {(items) =>
          items.length === 0 ? (
            <Empty icon={<Activity size={20} />} action={create} snippet={<CodeBlock code={text.monitor.emptySnippet} />}>
              {text.monitors.empty}
            </Empty>
          ) : (
            <Table
              label={text.monitors.title}
              rows={items}
              keyOf={(each) => each.id}
              hrefOf={hasPage("/monitors/x") ? (each) => `/monitors/${each.id}` : undefined}
              filter={(each) => `${each.name} ${each.url} ${stateOf(each)}`}
              columns={[
                { name: text.common.name, of: (each) => each.name, sort: (each) => each.name },
                { name: text.common.status, of: (each) => <Status of={stateOf(each)} />, sort: stateOf },
                { name: text.monitors.address, of: (each) => <span class="soft cut" title={each.url ?? ""}>{hostOf(each.url ?? "")}</span>, isHiddenOnPhone: true },
                { name: text.monitors.bars, of: (each) => <HourBars id={each.id} />, width: "200px", isHiddenOnPhone: true },
                { name: text.monitors.uptime, of: (each) => (each.uptimePercent === null ? "–" : percent(each.uptimePercent, 2)), sort: (each) => each.uptimePercent, isNumber: true },
                { name: text.monitors.response, of: (each) => (each.lastHeartbeat?.responseTime == null ? "–" : `${each.lastHeartbeat.responseTime} ms`), sort: (each) => each.lastHeartbeat?.responseTime, isNumber: true },
                { name: text.monitors.lastCheck, of: (each) => <Time at={each.lastHeartbeat?.time} />, sort: (each) => each.lastHeartbeat?.time },
              ]}
            />
          )
        }
      </Loaded>
    </>
  );
}
