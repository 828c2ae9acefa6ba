/** The overview of a project: what is live, the last deployments, traffic of the last day, details. */

import { ScrollText } from "lucide-preact";
import { useResource } from "../../api/resource";
import { compact, duration, percent } from "../../lib/format";
import { text } from "../../text";
import { ButtonLink } from "../../ui/button";
import { Sparkline } from "../../ui/chart/sparkline";
import { Copy } from "../../ui/copy";
import { Card, Empty, Facts, Loaded, SkeletonRows } from "../../ui/feedback";
import { DeploymentLog } from "../../ui/log/deployment";
import { Status } from "../../ui/status";
import { Time } from "../../ui/time";
import { DeploymentRows } from "./deployments";
import type { TabProps } from "./project";
import { deploymentState, shortCommit, type Deployment, type Project } from "./state";

export default function Overview({ project }: TabProps) {
  const list = useResource("/v1/projects/{name}/deployments", { path: { name: project.name }, query: { limit: 20 } }, { pollMs: 5_000 });
  const live = list.data?.items.find((each) => each.enable);
  const newest = list.data?.items[0];
  const isBusy = newest !== undefined && ["queued", "running"].includes(newest.status);
  return (
    <div class="stack wide">
      {isBusy && (
        <Card title={text.projects.log} isFlush actions={<Status of={deploymentState(newest.status)} />}>
          <DeploymentLog uuid={newest.deploymentUuid} key={newest.deploymentUuid} />
        </Card>
      )}
      <div class="grid-2">
        <Card title={text.projects.production}>
          <Loaded of={list} skeleton={<SkeletonRows rows={2} />}>
            {() => (live ? <Live deployment={live} project={project} /> : <Empty>{text.projects.noRelease}</Empty>)}
          </Loaded>
        </Card>
        <Traffic project={project} />
      </div>
      <Card title={text.projects.deployments} isFlush>
        <Loaded of={list}>{({ items }) => (items.length ? <DeploymentRows project={project} items={items.slice(0, 5)} /> : <Empty>{text.home.noDeployments}</Empty>)}</Loaded>
      </Card>
      <Card title={text.projects.details}>
        <Facts items={detailsOf(project)} />
      </Card>
    </div>
  );
}

function Live({ deployment, project }: { deployment: Deployment; project: Project }) {
  return (
    <div class="stack wide">
      <Facts
        items={[
          [text.projects.commit, deployment.commitId ? <Copy value={deployment.commitSha ?? deployment.commitId} shown={shortCommit(deployment.commitId)} isMono /> : text.projects.upload],
          [text.projects.liveSince, <Time at={deployment.updatedAt} />],
          [text.projects.builtIn, deployment.durationMs === null ? "–" : duration(deployment.durationMs)],
          [text.projects.by, deployment.actor.name ?? deployment.actor.username ?? "–"],
          ...(deployment.swap ? ([[text.projects.swap, text.projects.swapText(deployment.swap.requests, deployment.swap.failed)]] as [string, string][]) : []),
        ]}
      />
      <div class="row wrap">
        <ButtonLink size="small" href={`/projects/${project.name}/deployments/${deployment.deploymentUuid}`} icon={<ScrollText size={14} aria-hidden="true" />}>
          {text.projects.log}
        </ButtonLink>
      </div>
    </div>
  );
}

/** Requests of the last day: metrics of an app, or visitors of a site that counts them. */
function Traffic({ project }: { project: Project }) {
  const isApp = project.slug === "container";
  const metrics = useResource("/v1/projects/{name}/metrics", { path: { name: project.name }, query: { range: "24h" } }, { pollMs: 30_000, isOn: isApp });
  const visits = useResource("/v1/projects/{name}/analytics", { path: { name: project.name }, query: { range: "24h" } }, { pollMs: 60_000, isOn: !isApp && project.enableAnalytics });
  const rows: [label: string, values: (number | null)[], value: string][] = [];
  if (metrics.data) {
    const { items, totals } = metrics.data;
    rows.push([text.projects.requests, items.map((each) => each.requests), compact(totals.requests)]);
    rows.push([text.projects.errors, items.map((each) => each.statuses["5xx"] ?? 0), totals.requests ? percent((100 * totals.failed) / totals.requests) : "–"]);
    rows.push([text.projects.p95, items.map((each) => each.p95Ms), totals.p95Ms === null ? "–" : `${Math.round(totals.p95Ms)} ms`]);
  }
  if (visits.data?.enabled) {
    rows.push([text.projects.requests, visits.data.series.map((each) => each.requests), compact(visits.data.totals.requests)]);
    rows.push([text.projects.visitors, visits.data.series.map((each) => each.visitors), compact(visits.data.totals.visitors)]);
  }
  if (!isApp && !project.enableAnalytics) {
    return (
      <Card title={text.projects.last24h}>
        <p class="soft">{text.projects.analyticsOff}</p>
      </Card>
    );
  }
  return (
    <Card title={text.projects.last24h}>
      <div class="stack wide">
        {rows.map(([label, values, value]) => (
          <div key={label} class="traffic">
            <span class="soft">{label}</span>
            <Sparkline values={values} label={`${label}: ${value}`} />
            <strong class="figures">{value}</strong>
          </div>
        ))}
        {rows.length === 0 && <SkeletonRows rows={2} height={32} />}
      </div>
    </Card>
  );
}

function detailsOf(project: Project): [string, preact.ComponentChildren][] {
  return [
    [text.projects.kind, project.slug ? (text.projects.kinds[project.slug] ?? project.slug) : "–"],
    [text.projects.repository, project.repositoryName ?? text.projects.upload],
    ...(project.repositoryName ? ([[text.projects.branch, <span class="mono">{project.branch}</span>]] as [string, preact.ComponentChildren][]) : []),
    [text.common.created, <Time at={project.createdAt} />],
    [text.projects.deployments, `${project.totalDeployments}, ${project.failedDeployments} ${text.status.failed.toLowerCase()}`],
  ];
}
