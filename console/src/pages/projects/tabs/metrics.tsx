/** Usage, requests and latency of an app over time, with one cursor over all charts. */

import { ChartLine } from "lucide-preact";
import { useLocation } from "preact-iso";
import { useMemo } from "preact/hooks";
import { useResource } from "../../../api/resource";
import type { Data } from "../../../api/types";
import { compact, percent } from "../../../lib/format";
import { text } from "../../../text";
import { ButtonLink } from "../../../ui/button";
import { Chart, Ranges, type Mark } from "../../../ui/chart/chart";
import { Card, Empty, Loaded } from "../../../ui/feedback";
import { Time } from "../../../ui/time";
import type { TabProps } from "../project";
import { markOf, shortCommit, useLiveDeployments, type Project } from "../state";

type Metrics = Data<"/v1/projects/{name}/metrics">;

const RANGES = ["1h", "6h", "24h", "7d"] as const;
type Range = (typeof RANGES)[number];

export default function MetricsTab({ project }: TabProps) {
  if (project.slug === "container") return <AppMetrics project={project} />;
  return (
    <Card>
      <Empty icon={<ChartLine size={20} />} action={<ButtonLink href={`/projects/${project.name}/visitors`}>{text.projectTabs.visitors}</ButtonLink>}>
        {text.metrics.static}
      </Empty>
    </Card>
  );
}

function AppMetrics({ project }: { project: Project }) {
  const { query, path, route } = useLocation();
  const range = (RANGES.find((each) => each === query["range"]) ?? "1h") as Range;
  const metrics = useResource("/v1/projects/{name}/metrics", { path: { name: project.name }, query: { range } }, { pollMs: range === "1h" ? 15_000 : 60_000 });
  const within = useLiveDeployments(project.name, metrics.data?.items[0] ? Date.parse(metrics.data.items[0].at) : Infinity);
  const marks = within.map((each) => markOf(project.name, each));
  return (
    <div class="stack wide">
      <div class="row between wrap">
        {metrics.data ? <Totals metrics={metrics.data} /> : <span />}
        <Ranges value={range} ranges={RANGES} onChange={(next) => route(`${path}?range=${next}`, true)} />
      </div>
      <Loaded of={metrics}>{(data) => <Charts metrics={data} marks={marks} project={project} />}</Loaded>
      {within.length > 0 && (
        <Card title={text.metrics.marks} isFlush>
          <ul class="lines">
            {within.slice(0, 8).map((each) => (
              <li key={each.id}>
                <a href={`/projects/${project.name}/deployments/${each.deploymentUuid}`}>
                  <code>{shortCommit(each.commitId) || each.kind}</code>
                  <span class="soft grow cut">{each.actor.name ?? each.actor.username ?? ""}</span>
                  <span class="soft small when">
                    <Time at={each.updatedAt} />
                  </span>
                </a>
              </li>
            ))}
          </ul>
        </Card>
      )}
    </div>
  );
}

function Totals({ metrics }: { metrics: Metrics }) {
  const { totals } = metrics;
  const values: [string, string][] = [
    [text.metrics.requests, compact(totals.requests)],
    [text.metrics.failed, totals.requests ? percent((100 * totals.failed) / totals.requests) : "–"],
    ["p50", totals.p50Ms === null ? "–" : `${compact(Math.round(totals.p50Ms))} ms`],
    ["p95", totals.p95Ms === null ? "–" : `${compact(Math.round(totals.p95Ms))} ms`],
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

function Charts({ metrics, marks, project }: { metrics: Metrics; marks: Mark[]; project: Project }) {
  const { items, bucketSeconds } = metrics;
  const times = useMemo(() => items.map((each) => Date.parse(each.at) / 1_000), [items]);
  const t = text.metrics;
  const shared = { times, marks, group: `metrics-${project.name}` };
  const memory = items.map((each) => (each.replicas > 0 ? each.memoryMiB : null));
  const limit = project.tier ? project.tier.memory * 1_024 : undefined;
  const classes = (["2xx", "3xx", "4xx", "5xx"] as const).filter((name) => name === "2xx" || items.some((each) => each.statuses[name]));
  const colors = { "2xx": "accent", "3xx": "blue", "4xx": "amber", "5xx": "bad" } as const;
  return (
    <div class="charts">
      <Card>
        <Chart {...shared} title={`${t.requests} ${t.perBucket(bucketSeconds)}`} series={classes.map((name) => ({ label: name, color: colors[name], values: items.map((each) => each.statuses[name] ?? 0) }))} />
      </Card>
      <Card>
        <Chart
          {...shared}
          title={t.latency}
          unit="ms"
          series={[
            { label: "p50", values: items.map((each) => each.p50Ms) },
            { label: "p95", values: items.map((each) => each.p95Ms), color: "amber" },
          ]}
        />
      </Card>
      <Card>
        <Chart {...shared} title={`${t.cpu}, % ${t.ofLimit}`} unit="%" max={Math.max(100, ...items.map((each) => each.cpuPercent ?? 0))} series={[{ label: t.cpu, values: items.map((each) => each.cpuPercent) }]} />
      </Card>
      <Card>
        <Chart {...shared} title={limit ? `${t.memory}, MiB of ${compact(limit)}` : t.memory} unit="MiB" series={[{ label: t.memory, values: memory, color: "blue" }]} />
      </Card>
      <Card>
        <Chart {...shared} title={t.replicas} series={[{ label: t.replicas, values: items.map((each) => each.replicas) }]} height={120} isWhole />
      </Card>
    </div>
  );
}
