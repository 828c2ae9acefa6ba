/** Charts of a database: engine metrics over time, and live usage of the server. */

import { useLocation } from "preact-iso";
import { useEffect, useMemo, useState } from "preact/hooks";
import { useResource } from "../../api/resource";
import type { Data } from "../../api/types";
import { bytes, compact, percent } from "../../lib/format";
import { text } from "../../text";
import { Chart, Ranges, type Mark } from "../../ui/chart/chart";
import { Meter } from "../../ui/chart/sparkline";
import { Card, Empty, Loaded, Notice } from "../../ui/feedback";
import { Time } from "../../ui/time";
import { NeedsPaid } from "./needs";
import { paths, type Database, type TabProps } from "./state";
import { useIsPaid } from "./tiers";

const t = text.database.metrics;
const RANGES = ["1h", "24h", "7d", "30d"] as const;
type Range = (typeof RANGES)[number];
type Usage = Data<"/v1/databases/{name}/metrics">;

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
      <Loaded of={series}>{(data) => (data.enabled ? <EngineCharts series={data} marks={marks} group={`database-${name}`} /> : <Notice>{t.off}</Notice>)}</Loaded>
      <Live database={database} name={name} />
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
        <Chart {...shared} marks={marks} title={t.connections} series={[{ label: t.connections, values: points.map((each) => each.connections) }]} />
      </Card>
      <Card>
        <Chart {...shared} marks={marks} title={t.qps} series={[{ label: t.qps, values: points.map((each) => each.qps), color: "blue" }]} />
      </Card>
      <Card>
        <Chart {...shared} marks={marks} title={t.cache} unit="%" max={100} series={[{ label: t.cache, values: points.map((each) => each.cacheHitPct) }]} />
      </Card>
    </div>
  );
}

interface LiveSample {
  at: number;
  cpu: number | null;
  memory: number | null;
  disk: number | null;
}

const KEPT = 240; // one hour
const LEAST_S = 600; // width of the axis of a page that was just opened
const samples = new Map<string, LiveSample[]>();

/** The API has the current usage only, so the charts hold what this page has seen; they stay while the console is open. */
function useSamples(key: string, usage: Usage | undefined, at: number, diskBytes: number): LiveSample[] {
  const [, redraw] = useState(0);
  useEffect(() => {
    if (!usage) return;
    const seen = samples.get(key) ?? [];
    const now = Math.round(at / 1_000);
    if ((seen[seen.length - 1]?.at ?? 0) >= now) return;
    samples.set(key, [...seen, { at: now, cpu: usage.cpuMilli, memory: usage.memoryMiB, disk: diskBytes / 2 ** 20 }].slice(-KEPT));
    redraw(now);
  }, [at]);
  const seen = samples.get(key) ?? [];
  const first = seen[0]?.at ?? Math.round(Date.now() / 1_000);
  return [{ at: Math.min(first - 15, Math.round(Date.now() / 1_000) - LEAST_S), cpu: null, memory: null, disk: null }, ...seen];
}

function Live({ database, name }: { database: Database; name: string }) {
  const usage = useResource("/v1/databases/{name}/metrics", { path: { name } }, { pollMs: 15_000 });
  const seen = useSamples(`${database.id}`, usage.data, usage.at, database.diskUsedBytes);
  const { cpu, memory, disk } = database.serverDetails;
  const shared = { times: seen.map((each) => each.at), group: `live-${name}` };
  const latest = usage.data;
  const mib = (value: number) => bytes(value * 2 ** 20);
  return (
    <section class="stack">
      <div class="row between wrap">
        <h2>{t.live}</h2>
        {latest && (
          <span class="soft small">
            {latest.startedAt && (
              <>
                {t.started} <Time at={latest.startedAt} /> ·{" "}
              </>
            )} {t.restarts}: {latest.restarts}
          </span>
        )}
      </div>
      <p class="soft small">{t.liveHint}</p>
      <div class="charts three">
        <LiveCard used={latest?.cpuMilli} limit={cpu * 1_000} label={`${t.cpu}, ${t.of(`${cpu} CPU`)}`}>
          <Chart {...shared} title={t.cpu} unit="mCPU" series={[{ label: t.cpu, values: seen.map((each) => each.cpu) }]} />
        </LiveCard>
        <LiveCard used={latest?.memoryMiB} limit={memory * 1_024} label={`${t.memory}, ${t.of(`${memory} GB`)}`}>
          <Chart {...shared} title={t.memory} format={mib} series={[{ label: t.memory, values: seen.map((each) => each.memory), color: "blue" }]} />
        </LiveCard>
        <LiveCard used={database.diskUsedBytes / 2 ** 20} limit={disk * 1_024} label={`${t.disk}, ${t.of(`${disk} GB`)}`}>
          <Chart {...shared} title={t.disk} format={mib} series={[{ label: t.disk, values: seen.map((each) => each.disk), color: "amber" }]} />
        </LiveCard>
      </div>
      {latest && !latest.available && <Empty>{t.waiting}</Empty>}
    </section>
  );
}

function LiveCard({ used, limit, label, children }: { used: number | null | undefined; limit: number; label: string; children: preact.ComponentChildren }) {
  return (
    <Card>
      {children}
      <div class="stack tight live-meter">
        <span class="soft small row between">
          <span>{label}</span>
          <span class="figures">{used === null || used === undefined ? "–" : percent((100 * used) / limit)}</span>
        </span>
        <Meter used={used ?? 0} limit={limit} label={label} />
      </div>
    </Card>
  );
}
