/** A monitor as it stands on the public status page. */

import { useResource } from "../../api/resource";
import { percent } from "../../lib/format";
import { text } from "../../text";
import { Bars, type Bar } from "../../ui/chart/sparkline";
import { Status } from "../../ui/status";
import { stateOf } from "../lists/monitors";
import type { Monitor } from "./monitor";

const t = text.monitor;
const DAYS = 90; // as on the status page

export function StatusPreview({ monitor }: { monitor: Monitor }) {
  const { data } = useResource("/v1/monitors/{monitor_id}/aggregate", { path: { monitor_id: monitor.id }, query: { hours: DAYS * 24 } });
  const bars = (data?.buckets ?? []).slice(-DAYS).map(({ bucket, upCount: up, downCount: down }): Bar => {
    const date = bucket.slice(0, 10);
    if (up + down === 0) return { look: "none", title: `${date}: ${t.notChecked}` };
    return { look: down === 0 ? "ok" : up > down ? "warn" : "bad", title: `${date}: ${percent((100 * up) / (up + down), 2)}` };
  });
  const uptime = data?.uptimePercent;
  return (
    <div class="status-preview" data-off={!monitor.public}>
      <div class="row between">
        <strong class="cut">{monitor.name}</strong>
        <Status of={stateOf(monitor)} />
      </div>
      <Bars bars={bars} label={t.previewLabel} />
      <span class="soft small">{uptime === null || uptime === undefined ? t.previewNoData : t.previewUptime(percent(uptime, 2), DAYS)}</span>
    </div>
  );
}
