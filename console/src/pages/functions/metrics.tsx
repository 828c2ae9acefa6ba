/** Charts of a function: calls, errors, average duration. */

import { useEffect, useRef, useState } from "preact/hooks";
import { useLocation } from "preact-iso";
import { useResource } from "../../api/resource";
import type { Data } from "../../api/types";
import { compact, count, percent, shortDuration } from "../../lib/format";
import { text } from "../../text";
import { Chart, Ranges, type Mark } from "../../ui/chart/chart";
import { Card, Loaded, Notice } from "../../ui/feedback";
import type { TabProps } from "./function";

const t = text.fnMetrics;
const HOURS = { "1h": 1, "24h": 24, "7d": 24 * 7, "30d": 24 * 30 };
type Range = keyof typeof HOURS;
type Metrics = Data<"/v1/functions/{name}/metrics">;

/** Now, rounded down to a minute so that charts share an answer, and moving on while the tab is shown. */
function useMinute(): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => !document.hidden && setNow(Date.now()), 30_000);
    return () => clearInterval(timer);
  }, []);
  return Math.floor(now / 30_000) * 30_000;
}

export default function MetricsTab({ fn }: TabProps) {
  const { query, route, path } = useLocation();
  const range: Range = query["range"] && query["range"] in HOURS ? (query["range"] as Range) : "24h";
  const now = useMinute();
  const found = useResource("/v1/functions/{name}/metrics", { path: { name: fn.name }, query: { fromMs: now - HOURS[range] * 3_600_000, toMs: now + 30_000 } });
  // The last answer stays until the next one is here, so that nothing jumps.
  const last = useRef<Metrics | undefined>(undefined);
  if (found.data) last.current = found.data;
  const versions = useResource("/v1/functions/{name}/versions", { path: { name: fn.name } });
  const marks = (versions.data ?? []).map((each) => ({ at: Date.parse(each.createdAt) / 1_000, label: t.mark(each.version), href: `/functions/${fn.name}/code${each.current ? "" : `/${each.version}`}` }));
  const shown = { ...found, data: found.data ?? last.current };
  return (
    <div class="stack wide">
      <div class="row end">
        <Ranges value={range} ranges={Object.keys(HOURS) as Range[]} onChange={(next) => route(`${path}?range=${next}`, true)} />
      </div>
      <Loaded of={shown}>{(data) => <Charts data={data} marks={marks} />}</Loaded>
    </div>
  );
}

function Charts({ data, marks }: { data: Metrics; marks: Mark[] }) {
  const times = data.timestamps.map((at) => Date.parse(at) / 1_000);
  const calls = data.invocations.reduce((sum, each) => sum + each, 0);
  const errors = data.errors.reduce((sum, each) => sum + each, 0);
  const spent = data.latency.reduce<number>((sum, each, at) => sum + (each ?? 0) * (data.invocations[at] ?? 0), 0);
  const tiles: [string, string][] = [
    [t.total, count(calls)],
    [t.errors, count(errors)],
    [t.errorRate, calls ? percent((errors / calls) * 100) : "–"],
    [t.average, calls ? shortDuration(spent / calls) : "–"],
  ];
  return (
    <>
      <dl class="figure-tiles">
        {tiles.map(([name, value]) => (
          <div key={name} class="card">
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      {calls === 0 && <Notice>{t.empty}</Notice>}
      <Card>
        <Chart title={t.invocations} times={times} marks={marks} series={[{ label: t.invocations, values: data.invocations }]} format={compact} group="function" />
      </Card>
      <div class="grid-2 even">
        <Card>
          <Chart title={t.errors} times={times} marks={marks} series={[{ label: t.errors, values: data.errors, color: "bad" }]} format={compact} group="function" />
        </Card>
        <Card>
          <Chart title={t.latency} times={times} marks={marks} series={[{ label: t.latency, values: data.latency, color: "blue" }]} format={shortDuration} group="function" />
        </Card>
      </div>
    </>
  );
}
