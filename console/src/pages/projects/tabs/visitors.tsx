/** Visitors of a project: totals, buckets, top pages and referrers. */

import { Users } from "lucide-preact";
import { useLocation } from "preact-iso";
import { useMemo } from "preact/hooks";
import { useAction } from "../../../api/actions";
import { api } from "../../../api/client";
import { useResource } from "../../../api/resource";
import type { Data } from "../../../api/types";
import { bytes, compact, count, percent } from "../../../lib/format";
import { whyNot } from "../../../lib/roles";
import { text } from "../../../text";
import { Button } from "../../../ui/button";
import { Chart, Ranges } from "../../../ui/chart/chart";
import { Card, Empty, Loaded } from "../../../ui/feedback";
import type { TabProps } from "../project";
import { markOf, useLiveDeployments, type Project } from "../state";

type Analytics = Data<"/v1/projects/{name}/analytics">;

const RANGES = ["24h", "7d", "30d", "90d"] as const;

export default function Visitors({ project }: TabProps) {
  return project.enableAnalytics ? <Figures project={project} /> : <TurnOn project={project} />;
}

function TurnOn({ project }: { project: Project }) {
  const t = text.visitors;
  const turnOn = useAction(() => api.patch("/v1/projects/{name}", { path: { name: project.name }, body: { enableAnalytics: true } }), {
    done: t.turnedOn,
    refreshes: ["/v1/projects"],
  });
  return (
    <Card>
      <Empty
        icon={<Users size={20} />}
        action={
          <Button kind="primary" why={whyNot("member")} isBusy={turnOn.isBusy} onClick={() => turnOn.run()}>
            {t.turnOn}
          </Button>
        }
      >
        {t.off}
      </Empty>
    </Card>
  );
}

function Figures({ project }: { project: Project }) {
  const { query, path, route } = useLocation();
  const range = RANGES.find((each) => each === query["range"]) ?? "24h";
  const visits = useResource("/v1/projects/{name}/analytics", { path: { name: project.name }, query: { range } }, { pollMs: 30_000 });
  return (
    <div class="stack wide">
      <div class="row between wrap">
        {visits.data ? <Totals visits={visits.data} /> : <span />}
        <Ranges value={range} ranges={RANGES} onChange={(next) => route(`${path}?range=${next}`, true)} />
      </div>
      <Loaded of={visits}>{(data) => <Details visits={data} name={project.name} />}</Loaded>
    </div>
  );
}

function Totals({ visits }: { visits: Analytics }) {
  const t = text.visitors;
  const { requests, visitors, bytes: size, statuses } = visits.totals;
  const failed = (statuses["5xx"] ?? 0) + (statuses["4xx"] ?? 0);
  const values: [string, string][] = [
    [t.visitors, compact(visitors)],
    [t.requests, compact(requests)],
    [t.traffic, bytes(size)],
    [t.errors, requests ? percent((100 * failed) / requests) : "–"],
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

function Details({ visits, name }: { visits: Analytics; name: string }) {
  const t = text.visitors;
  const times = useMemo(() => visits.series.map((each) => Date.parse(each.t) / 1_000), [visits]);
  const marks = useLiveDeployments(name, (times[0] ?? Infinity) * 1_000).map((each) => markOf(name, each));
  const per = visits.range === "24h" ? t.perHour : t.perDay;
  const statuses = Object.entries(visits.totals.statuses).filter(([, requests]) => requests > 0).sort();
  return (
    <>
      <div class="charts">
        <Card>
          <Chart title={`${t.visitors} ${per}`} times={times} marks={marks} group="visits" series={[{ label: t.visitors, values: visits.series.map((each) => each.visitors) }]} />
        </Card>
        <Card>
          <Chart title={`${t.requests} ${per}`} times={times} marks={marks} group="visits" series={[{ label: t.requests, values: visits.series.map((each) => each.requests), color: "blue" }]} />
        </Card>
      </div>
      <div class="charts">
        <Card title={t.topPaths} isFlush>
          <Ranking rows={visits.topPaths.map(({ path, requests }) => [path === "other" ? t.other : path, requests])} empty={t.nonePaths} />
        </Card>
        <Card title={t.topReferrers} isFlush>
          <Ranking rows={visits.topReferrers.map(({ referrer, requests }) => [referrer === "other" ? t.other : referrer || t.direct, requests])} empty={t.noneReferrers} />
        </Card>
      </div>
      {statuses.length > 0 && (
        <Card title={t.answers} isFlush foot={t.hint}>
          <Ranking rows={statuses} empty="" />
        </Card>
      )}
    </>
  );
}

/** Rows with a bar behind each, the largest one as wide as the card. */
function Ranking({ rows, empty }: { rows: [label: string, value: number][]; empty: string }) {
  const high = Math.max(1, ...rows.map(([, value]) => value));
  if (rows.length === 0) return <p class="soft well">{empty}</p>;
  return (
    <ol class="ranking">
      {rows.map(([label, value]) => (
        <li key={label}>
          <i style={{ width: `${(100 * value) / high}%` }} aria-hidden="true" />
          <span class="cut" title={label}>
            {label}
          </span>
          <span class="figures">{count(value)}</span>
        </li>
      ))}
    </ol>
  );
}
