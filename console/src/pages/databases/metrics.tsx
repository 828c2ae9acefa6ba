/** Charts of a database: current usage of its tier, engine metrics and usage over time. */

import { useLocation } from "preact-iso";
import { useMemo } from "preact/hooks";
import { useResource } from "../../api/resource";
import type { Data } from "../../api/types";
import { bytes, compact, percent } from "../../lib/format";
import { text } from "../../text";
import { Chart, Ranges, type Mark } from "../../ui/chart/chart";
import { Meter } from "../../ui/chart/sparkline";
import { Card, Loaded, Notice } from "../../ui/feedback";
import { Time } from "../../ui/time";
import { NeedsPaid } from "./needs";
import { paths, type Database, type TabProps } from "./state";
import { useIsPaid } from "./tiers";

const t = text.database.metrics;
const RANGES = ["1h", "24h", "7d", "30d"] as const;
type Range = (typeof RANGES)[number];
const mib = (value: number) => bytes(value * 2 ** 20);

export default function Metrics({ database, name }: TabProps) {
  const { query, path, route } = useLocation();
  const range = (RANGES.find((each) => each === query["range"]) ?? "1h") as Range;
  const pollMs = range === "1h" ? 15_000 : 60_000;
  const sent = { path: { name }, query: { range } };
  const isPaid = useIsPaid(database);
  const options = { pollMs, isOn: isPaid === true };
  const summary = useResource("/v1/databases/{name}/metrics/summary", sent, options);
  const series = useResource("/v1/databases/{name}/metrics/timeseries", sent, options);
  const backups = useResource("/v1/databases/{name}/backups", { path: { name } }, { pollMs: 60_000, isOn: isPaid === true });
  const marks = (backups.data?.items ?? []).map((each): Mark => ({
    at: Date.parse(each.startedAt) / 1_000,
    label: t.backup(each.name),
    href: `${paths(name, "backups")}#${each.name}`,
    look: each.status === "failed" ? "bad" : "blue",
  }));
  if (isPaid === false) {
    return (
      <div class="stack wide">
        <Live database={database} name={name} />
        <NeedsPaid name={name} />
      </div>
    );
  }
  return (
    <div class="stack wide">
      <div class="row between wrap">
        {summary.data ? <Totals summary={summary.data} /> : <span />}
        <Ranges value={range} ranges={RANGES} onChange={(next) => route(`${path}?range=${next}`, true)} />
      </div>
      <Live database={database} name={name} />
      <Loaded of={series}>{(data) => (data.enabled ? <EngineCharts series={data} marks={marks} group={`database-${name}`} /> : <Notice>{t.off}</Notice>)}</Loaded>
    </div>
  );
}

function Totals({ summary }: { summary: Data<"/v1/databases/{name}/metrics/summary"> }) {
  const values: [string, string][] = [
    [t.connections, summary.connections === null ? "–" : `${summary.connections}${summary.maxConnections ? ` / ${summary.maxConnections}` : ""}`],
    [t.qps, summary.qps === null ? "–" : compact(summary.qps)],
    [t.cache, summary.cacheHitPct === null ? "–" : percent(summary.cacheHitPct)],
  ];
  return (
    <dl class="totals">
      {values.map(([label, value]) => (
        <div key={label}>
          <dt>{label}</dt>
          <dd class="figures">{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function EngineCharts({ series, marks, group }: { series: Data<"/v1/databases/{name}/metrics/timeseries">; marks: Mark[]; group: string }) {
  const { points } = series;
  const shared = useMemo(() => ({ times: points.map((each) => Date.parse(each.t) / 1_000), group }), [points]);
  return (
    <div class="charts three">
      <Card>
        <Chart {...shared} marks={marks} title={t.connections} isWhole series={[{ label: t.connections, values: points.map((each) => each.connections) }]} />
      </Card>
      <Card>
        <Chart {...shared} marks={marks} title={t.qps} series={[{ label: t.qps, values: points.map((each) => each.qps), color: "blue" }]} />
      </Card>
      <Card>
        <Chart {...shared} marks={marks} title={t.cache} unit="%" max={100} series={[{ label: t.cache, values: points.map((each) => each.cacheHitPct) }]} />
      </Card>
      <Card>
        <Chart {...shared} marks={marks} title={t.cpu} unit="mCPU" series={[{ label: t.cpu, values: points.map((each) => each.cpuMilli) }]} />
      </Card>
      <Card>
        <Chart {...shared} marks={marks} title={t.memory} format={mib} series={[{ label: t.memory, values: points.map((each) => each.memoryMiB), color: "blue" }]} />
      </Card>
      <Card>
        <Chart {...shared} marks={marks} title={t.disk} format={mib} series={[{ label: t.disk, values: held(points.map((each) => each.diskMiB)), color: "amber" }]} />
      </Card>
    </div>
  );
}

const HELD = 5; // samples; the size of the disk is measured less often than the rest

/** Fill short gaps between two samples with the earlier one. */
function held(values: (number | null)[]): (number | null)[] {
  return values.map((value, at) => value ?? (values.slice(at, at + HELD).some((next) => next !== null) ? (values.slice(Math.max(0, at - HELD), at).findLast((before) => before !== null) ?? null) : null));
}

/** How much of its tier the database uses now. */
function Live({ database, name }: { database: Database; name: string }) {
  const usage = useResource("/v1/databases/{name}/metrics", { path: { name } }, { pollMs: 15_000 });
  const { cpu, memory, disk } = database.serverDetails;
  const latest = usage.data;
  return (
    <Card
      title={t.live}
      actions={
        latest && (
          <span class="soft small">
            {latest.startedAt && (
              <>
                {t.started} <Time at={latest.startedAt} /> ·{" "}
              </>
            )}
            {t.restarts}: {latest.restarts}
          </span>
        )
      }
    >
      <div class="live-meters">
        <LiveMeter used={latest?.cpuMilli} limit={cpu * 1_000} label={`${t.cpu}, ${t.of(`${cpu} CPU`)}`} />
        <LiveMeter used={latest?.memoryMiB} limit={memory * 1_024} label={`${t.memory}, ${t.of(`${memory} GB`)}`} />
        <LiveMeter used={database.diskUsedBytes / 2 ** 20} limit={disk * 1_024} label={`${t.disk}, ${t.of(`${disk} GB`)}`} />
      </div>
      {latest && !latest.available && <p class="soft small">{t.waiting}</p>}
    </Card>
  );
}

function LiveMeter({ used, limit, label }: { used: number | null | undefined; limit: number; label: string }) {
  return (
    <div class="stack tight">
      <span class="soft small row between">
        <span>{label}</span>
        <span class="figures">{used === null || used === undefined ? "–" : percent((100 * used) / limit)}</span>
      </span>
      <Meter used={used ?? 0} limit={limit} label={label} />
    </div>
  );
}
