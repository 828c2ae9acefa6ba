/** The deployments of a project, and one of them with its log. */

import { ArrowLeft, GitCompareArrows, History } from "lucide-preact";
import { useState } from "preact/hooks";
import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import { count, duration } from "../../lib/format";
import { whyNot } from "../../lib/roles";
import { text } from "../../text";
import { Button, ButtonLink } from "../../ui/button";
import { Copy } from "../../ui/copy";
import { Confirm } from "../../ui/dialog";
import { Card, Empty, Facts, Loaded, Notice } from "../../ui/feedback";
import { DeploymentLog } from "../../ui/log/deployment";
import { Status } from "../../ui/status";
import { Table } from "../../ui/table";
import { Time } from "../../ui/time";
import { Compare } from "./compare";
import type { TabProps } from "./project";
import { deploymentState, shortCommit, type Deployment, type Project } from "./state";

export default function Deployments({ project, id }: TabProps) {
  const list = useResource("/v1/projects/{name}/deployments", { path: { name: project.name }, query: { limit: 100 } }, { pollMs: 5_000 });
  if (id === "compare") return <Loaded of={list}>{({ items }) => <Compare project={project} items={items} />}</Loaded>;
  if (id) return <OneDeployment project={project} uuid={id} known={list.data?.items.find((each) => each.deploymentUuid === id)} />;
  return (
    <Loaded of={list}>
      {({ items }) =>
        items.length ? (
          <div class="stack">
            {items.length > 1 && (
              <div class="row end">
                <ButtonLink size="small" href={`/projects/${project.name}/deployments/compare`} icon={<GitCompareArrows size={14} aria-hidden="true" />}>
                  {text.compare.title}
                </ButtonLink>
              </div>
            )}
            <DeploymentRows project={project} items={items} />
          </div>
        ) : (
          <Card>
            <Empty>{text.home.noDeployments}</Empty>
          </Card>
        )
      }
    </Loaded>
  );
}

export function DeploymentRows({ project, items }: { project: Project; items: Deployment[] }) {
  return (
    <Table
      label={text.projects.deployments}
      rows={items}
      keyOf={(each) => each.id}
      hrefOf={(each) => `/projects/${project.name}/deployments/${each.deploymentUuid}`}
      columns={[
        {
          name: text.projects.commit,
          of: (each) => (
            <span class="row">
              <code>{shortCommit(each.commitId) || each.kind}</code>
              {each.enable && <span class="tag accent">{text.projects.live}</span>}
            </span>
          ),
        },
        { name: text.common.status, of: (each) => <Status of={deploymentState(each.status)} /> },
        { name: text.projects.branch, of: (each) => <span class="mono soft">{each.branch ?? ""}</span>, isHiddenOnPhone: true },
        { name: text.projects.builtIn, of: (each) => (each.durationMs === null ? "–" : duration(each.durationMs)), isNumber: true },
        { name: text.projects.by, of: (each) => <span class="soft">{each.actor.name ?? each.actor.username ?? "–"}</span>, isHiddenOnPhone: true },
        { name: text.common.created, of: (each) => <Time at={each.createdAt} /> },
      ]}
    />
  );
}

/** What visitors met while the old release handed over to this one. */
function Swap({ swap }: { swap: NonNullable<Deployment["swap"]> }) {
  const t = text.compare;
  return (
    <Card title={t.swapTitle} foot={t.swapHint}>
      <Facts
        items={[
          [t.swapRequests, <strong class="figures">{count(swap.requests)}</strong>],
          [t.swapFailed, <Status of={swap.failed === 0 ? "succeeded" : "failed"} word={swap.failed === 0 ? t.swapNone : count(swap.failed)} />],
          [t.swapGap, <strong class="figures">{duration(swap.longestGapMs)}</strong>],
        ]}
      />
    </Card>
  );
}

function OneDeployment({ project, uuid, known }: { project: Project; uuid: string; known: Deployment | undefined }) {
  const status = useResource("/v1/deployments/{uuid}/status", { path: { uuid } }, { pollMs: known && !["queued", "running"].includes(known.status) ? 0 : 2_000 });
  const [isAsking, setAsking] = useState(false);
  const canRollBack = known?.status === "succeeded" && !known.enable && !known.preview;
  return (
    <div class="stack wide">
      <div class="row wrap">
        <ButtonLink size="small" kind="quiet" href={`/projects/${project.name}/deployments`} icon={<ArrowLeft size={14} aria-hidden="true" />}>
          {text.projects.deployments}
        </ButtonLink>
        <span class="grow" />
        {known && !known.enable && (
          <ButtonLink size="small" href={`/projects/${project.name}/deployments/compare?to=${uuid}`} icon={<GitCompareArrows size={14} aria-hidden="true" />}>
            {text.compare.compareWith}
          </ButtonLink>
        )}
        {canRollBack && (
          <Button size="small" why={whyNot("member")} onClick={() => setAsking(true)} icon={<History size={14} aria-hidden="true" />}>
            {text.projects.rollback}
          </Button>
        )}
      </div>
      <Loaded of={status}>
        {(data) => (
          <>
            <Card>
              <Facts
                items={[
                  [text.common.status, <Status of={deploymentState(data.status)} />],
                  [text.projects.commit, data.commitId ? <Copy value={data.commitId} shown={shortCommit(data.commitId)} isMono /> : text.projects.upload],
                  [text.projects.builtIn, known?.durationMs == null ? "–" : duration(known.durationMs)],
                  [text.common.created, <Time at={data.createdAt} />],
                  ...(data.queuePosition ? ([[text.status.queued, text.compare.queue(data.queuePosition)]] as [string, string][]) : []),
                ]}
              />
            </Card>
            {known?.swap && <Swap swap={known.swap} />}
            {data.reason && <Notice kind="bad">{data.reason}</Notice>}
          </>
        )}
      </Loaded>
      <DeploymentLog uuid={uuid} key={uuid} isTall />
      {isAsking && (
        <Confirm
          title={text.projects.rollbackTitle(shortCommit(known?.commitId) || uuid.slice(0, 8))}
          button={text.projects.rollback}
          act={() => api.post("/v1/projects/{name}/rollback", { path: { name: project.name }, body: { deploymentUuid: uuid } })}
          onClose={() => setAsking(false)}
          done={text.projects.rolledBack}
          refreshes={["/v1/projects"]}
        >
          <p>{text.projects.rollbackText}</p>
        </Confirm>
      )}
    </div>
  );
}
