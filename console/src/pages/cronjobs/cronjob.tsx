/** One cronjob: its head, its tabs, and the tab that is open. */

import { CirclePause, CirclePlay, Play } from "lucide-preact";
import type { AnyComponent } from "preact";
import { lazy, useLocation } from "preact-iso";
import { useAction } from "../../api/actions";
import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import type { Data } from "../../api/types";
import { NotFound } from "../../frame/notfound";
import { PageHead } from "../../frame/page";
import { whyNot } from "../../lib/roles";
import { text } from "../../text";
import { Button } from "../../ui/button";
import { Loaded, Skeleton, SkeletonRows } from "../../ui/feedback";
import { Status } from "../../ui/status";
import { Tabs } from "../../ui/tabs";
import { Time } from "../../ui/time";

export type Job = Data<"/v1/cronjobs/{name}">;

export interface TabProps {
  job: Job;
  name: string;
  id?: string | undefined; // a run, or a build
}

const t = text.jobs;
const TABS: { key: string; label: string; component: AnyComponent<TabProps> }[] = [
  { key: "", label: t.tabs.runs, component: lazy(() => import("./runs")) },
  { key: "build", label: t.tabs.build, component: lazy(() => import("./build")) },
  { key: "settings", label: t.tabs.settings, component: lazy(() => import("./settings")) },
];

/** "running" of a cronjob means that it waits for its time. */
export function jobState(status: string | null): string {
  return status === "running" ? "ready" : (status ?? "");
}

export default function CronjobPage({ name, tab = "", id }: { name: string; tab?: string; id?: string }) {
  const job = useResource("/v1/cronjobs/{name}", { path: { name } }, { pollMs: 5_000 });
  const open = TABS.find((each) => each.key === (tab === "runs" ? "" : tab));
  if (!open || job.error?.status === 404) return <NotFound />;
  const Open = open.component;
  const { data } = job;
  return (
    <>
      <PageHead
        title={name}
        crumbs={[{ label: text.cronjobs.title, href: "/cronjobs" }]}
        status={data ? <Status of={jobState(data.status)} /> : <Skeleton width={70} />}
        subtitle={data ? <NextRun job={data} /> : <Skeleton width={200} height={20} />}
        actions={data && <Actions job={data} name={name} />}
      />
      <Tabs label={name} tabs={TABS.map(({ key, label }) => ({ href: `/cronjobs/${name}${key && `/${key}`}`, label }))} />
      <Loaded of={job} skeleton={<SkeletonRows rows={4} />}>
        {(found) => <Open key={open.key} job={found} name={name} id={id} />}
      </Loaded>
    </>
  );
}

function NextRun({ job }: { job: Job }) {
  return (
    <span class="row soft">
      <code>{job.cronSchedule}</code>
      {job.isActive && (
        <span>
          {text.cronjobs.nextRun} <Time at={job.runStats.nextRunAt} />
        </span>
      )}
    </span>
  );
}

function Actions({ job, name }: { job: Job; name: string }) {
  const { route } = useLocation();
  const refreshes = ["/v1/cronjobs"];
  const trigger = useAction(() => api.post("/v1/cronjobs/{name}/trigger", { path: { name } }), {
    done: t.triggered,
    refreshes,
    onDone: (started) => route(`/cronjobs/${name}/runs/${started.executionUuid}`),
  });
  const pause = useAction(() => api.post("/v1/cronjobs/{name}/pause", { path: { name } }), { done: t.paused(name), refreshes });
  const resume = useAction(() => api.post("/v1/cronjobs/{name}/resume", { path: { name } }), { done: t.resumed(name), refreshes });
  const why = whyNot("member");
  const isPaused = job.status === "paused";
  const Icon = isPaused ? CirclePlay : CirclePause;
  return (
    <>
      <Button why={why} isBusy={pause.isBusy || resume.isBusy} onClick={() => (isPaused ? resume.run() : pause.run())} icon={<Icon size={15} aria-hidden="true" />}>
        {isPaused ? t.resume : t.pause}
      </Button>
      <Button kind="primary" why={why ?? (job.status === "deploying" || job.status === "pending" ? t.notReady : undefined)} isBusy={trigger.isBusy} onClick={() => trigger.run()} icon={<Play size={15} aria-hidden="true" />}>
        {t.trigger}
      </Button>
    </>
  );
}
