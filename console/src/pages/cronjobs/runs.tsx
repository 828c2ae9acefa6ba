/** The runs of a cronjob, and one of them with its live log. */

import { ArrowLeft, Clock } from "lucide-preact";
import { useState } from "preact/hooks";
import { refresh, useResource } from "../../api/resource";
import type { Data, Item } from "../../api/types";
import { count, duration } from "../../lib/format";
import { text } from "../../text";
import { Button, ButtonLink } from "../../ui/button";
import { Copy } from "../../ui/copy";
import { Card, Empty, Facts, Loaded, Notice } from "../../ui/feedback";
import { useLogStream } from "../../ui/log/deployment";
import { LogView } from "../../ui/log/view";
import { Status } from "../../ui/status";
import { Table } from "../../ui/table";
import { Time } from "../../ui/time";
import { CronMeaning } from "../cron/helper";
import type { Job, TabProps } from "./cronjob";

type Execution = Item<Data<"/v1/cronjobs/{name}/executions">>;
const t = text.jobs;
const PAGE_SIZE = 50;

export default function Runs({ job, name, id }: TabProps) {
  const [page, setPage] = useState(1);
  const list = useResource("/v1/cronjobs/{name}/executions", { path: { name }, query: { page, pageSize: PAGE_SIZE } }, { pollMs: 4_000 });
  if (id) return <OneRun key={id} name={name} uuid={id} known={list.data?.items.find((each) => each.executionUuid === id)} />;
  return (
    <div class="grid-2">
      <Loaded of={list}>
        {({ items, total }) =>
          total === 0 ? (
            <Card>
              <Empty icon={<Clock size={20} />}>{t.noRuns}</Empty>
            </Card>
          ) : (
            <div class="stack">
              <RunRows name={name} items={items} />
              {total > PAGE_SIZE && (
                <div class="row end">
                  <span class="soft small figures">{text.invocations.page(page, Math.ceil(total / PAGE_SIZE))}</span>
                  <Button size="small" isDisabled={page === 1} onClick={() => setPage(page - 1)}>
                    {text.invocations.newer}
                  </Button>
                  <Button size="small" isDisabled={page * PAGE_SIZE >= total} onClick={() => setPage(page + 1)}>
                    {text.invocations.older}
                  </Button>
                </div>
              )}
            </div>
          )
        }
      </Loaded>
      <About job={job} />
    </div>
  );
}

export function tookMs(run: Execution): number | undefined {
  if (!run.startedAt) return undefined;
  return (run.completedAt ? Date.parse(run.completedAt) : Date.now()) - Date.parse(run.startedAt);
}

/** "running" of a run is work in progress, unlike that of an app. */
export function runLook(status: string): { of: string; word?: string } {
  return status === "running" ? { of: "in_progress", word: text.status.running } : { of: status };
}

function RunRows({ name, items }: { name: string; items: Execution[] }) {
  return (
    <Table
      label={t.tabs.runs}
      rows={items}
      keyOf={(each) => each.id}
      hrefOf={(each) => `/cronjobs/${name}/runs/${each.executionUuid}`}
      columns={[
        { name: text.common.status, of: (each) => <Status {...runLook(each.status)} /> },
        { name: t.started, of: (each) => <Time at={each.startedAt ?? each.createdAt} /> },
        { name: t.duration, of: (each) => (tookMs(each) === undefined ? "–" : duration(tookMs(each)!)), isNumber: true },
        { name: t.exitCode, of: (each) => each.exitCode ?? "–", isNumber: true },
        { name: t.scheduledFor, of: (each) => (each.scheduledFor ? <Time at={each.scheduledFor} /> : <span class="soft">{t.byHand}</span>), isHiddenOnPhone: true },
      ]}
    />
  );
}

function About({ job }: { job: Job }) {
  const { runStats: stats } = job;
  return (
    <Card title={text.cronjobs.schedule}>
      <div class="stack wide">
        <CronMeaning expression={job.cronSchedule ?? ""} timezone="UTC" />
        <Facts
          items={[
            [text.cronjobs.runs, count(stats.totalRuns)],
            [t.succeeded, count(stats.successfulRuns)],
            [t.failed, count(stats.failedRuns)],
            [t.skipped, <span title={t.skippedHint}>{count(stats.skippedRuns)}</span>],
            [t.source, job.publicImage ? <code class="breaks">{job.publicImage}</code> : <span class="breaks">{`${job.repositoryName} (${job.branch})`}</span>],
            [t.tier, job.instanceType ?? "–"],
          ]}
        />
      </div>
    </Card>
  );
}

function OneRun({ name, uuid, known }: { name: string; uuid: string; known: Execution | undefined }) {
  const { lines, isLive } = useLogStream(`/v1/cronjobs/executions/${uuid}/logs/stream`, () => refresh("/v1/cronjobs"));
  return (
    <div class="stack wide">
      <div class="row wrap">
        <ButtonLink size="small" kind="quiet" href={`/cronjobs/${name}`} icon={<ArrowLeft size={14} aria-hidden="true" />}>
          {t.allRuns}
        </ButtonLink>
      </div>
      <Card>
        <Facts
          items={[
            [text.common.status, known ? <Status {...runLook(known.status)} /> : "–"],
            [t.started, known?.startedAt ? <Time at={known.startedAt} /> : "–"],
            [t.duration, known && tookMs(known) !== undefined ? <span class="figures">{duration(tookMs(known)!)}</span> : "–"],
            [t.exitCode, known?.exitCode ?? "–"],
            [t.run, <Copy value={uuid} shown={uuid.slice(0, 8)} isMono />],
          ]}
        />
      </Card>
      {known?.errorMessage && <Notice kind="bad">{known.errorMessage}</Notice>}
      <LogView lines={lines} name={`${name}-${uuid}`} isLive={isLive} isTall note={isLive ? t.runLogWaiting : t.runLogEnded} />
    </div>
  );
}
