/** Jobs that failed, or wait for another try. */

import { CircleCheck, RotateCw, Trash2 } from "lucide-preact";
import { useLocation } from "preact-iso";
import { useState } from "preact/hooks";
import { useAction } from "../../api/actions";
import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import type { Data, Item } from "../../api/types";
import { text } from "../../text";
import { Button } from "../../ui/button";
import { CopyButton } from "../../ui/copy";
import { Confirm } from "../../ui/dialog";
import { Empty, Loaded } from "../../ui/feedback";
import { Segments } from "../../ui/tabs";
import { Table } from "../../ui/table";
import { Time } from "../../ui/time";
import { Pages } from "./pages";

const t = text.operator;
type Job = Item<Data<"/v1/operator/jobs">>;
const REFRESHES = ["/v1/operator/jobs", "/v1/operator/queues"];
const SIZE = 20;

export default function Jobs() {
  const { query, path, route } = useLocation();
  const state = query["state"] === "retrying" ? "retrying" : "failed";
  const [page, setPage] = useState(1);
  const [discarded, setDiscarded] = useState<Job>();
  const jobs = useResource("/v1/operator/jobs", { query: { state, page, pageSize: SIZE } }, { pollMs: 10_000 });
  const choose = (next: string) => (setPage(1), route(`${path}?state=${next}`, true));
  return (
    <div class="stack">
      <Segments label={t.jobs} value={state} options={Object.entries(t.jobStates).map(([value, label]) => ({ value, label }))} onChange={choose} />
      <Loaded of={jobs}>
        {({ items, total }) =>
          items.length === 0 ? (
            <Empty icon={<CircleCheck size={20} />}>{state === "failed" ? t.noFailed : t.noRetrying}</Empty>
          ) : (
            <>
              <JobTable items={items} onDiscard={setDiscarded} />
              <Pages page={page} total={total} size={SIZE} onChange={setPage} />
            </>
          )
        }
      </Loaded>
      {discarded && (
        <Confirm title={t.discardTitle} button={t.discard} act={() => api.delete("/v1/operator/jobs/{job_id}", { path: { job_id: discarded.id } })} onClose={() => setDiscarded(undefined)} done={t.discarded} refreshes={REFRESHES}>
          <p class="mono breaks">{discarded.kind}</p>
          <p class="soft">{t.discardText}</p>
        </Confirm>
      )}
    </div>
  );
}

function JobTable({ items, onDiscard }: { items: Job[]; onDiscard: (job: Job) => void }) {
  return (
    <Table
      label={t.jobs}
      rows={items}
      keyOf={(each) => each.id}
      columns={[
        {
          name: t.kind,
          of: (each) => (
            <span class="stack tight">
              <code class="breaks">{each.kind}</code>
              {each.key && <span class="soft small breaks">{each.key}</span>}
            </span>
          ),
        },
        { name: t.error, of: (each) => <span class="breaks">{each.error ?? "–"}</span> },
        { name: t.attempts, of: (each) => `${each.attempts} / ${each.maxAttempts}`, isNumber: true },
        { name: t.organization, of: (each) => (each.organizationId ? <a href={`/operator/organizations?search=${each.organizationId}`}>{each.organizationId}</a> : "–"), isHiddenOnPhone: true },
        { name: text.common.updated, of: (each) => <Time at={each.updatedAt} />, sort: (each) => each.updatedAt },
        { name: t.next, of: (each) => (each.nextAttemptAt ? <Time at={each.nextAttemptAt} /> : "–"), isHiddenOnPhone: true },
        { name: "", of: (each) => <JobTools job={each} onDiscard={() => onDiscard(each)} /> },
      ]}
    />
  );
}

function JobTools({ job, onDiscard }: { job: Job; onDiscard: () => void }) {
  const retry = useAction(() => api.post("/v1/operator/jobs/{job_id}/retry", { path: { job_id: job.id } }), { done: t.retried, refreshes: REFRESHES });
  return (
    <span class="row-tools">
      {job.traceId && <CopyButton value={job.traceId} label={`${text.common.copy}: ${t.trace}`} />}
      <Button kind="quiet" size="small" label={t.retry} why={job.canRetry ? undefined : t.cannotRetry} isBusy={retry.isBusy} onClick={() => retry.run()} icon={<RotateCw size={14} aria-hidden="true" />} />
      <Button kind="quiet" size="small" label={t.discard} why={job.canDiscard ? undefined : t.cannotDiscard} onClick={onDiscard} icon={<Trash2 size={14} aria-hidden="true" />} />
    </span>
  );
}
