/** One schedule: when it runs, with what, run it now, change it, delete it. */

import { CirclePause, CirclePlay, Play } from "lucide-preact";
import { useLocation } from "preact-iso";
import { useState } from "preact/hooks";
import { useAction } from "../../api/actions";
import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import { NotFound } from "../../frame/notfound";
import { PageHead } from "../../frame/page";
import { whyNot } from "../../lib/roles";
import { text } from "../../text";
import { Button } from "../../ui/button";
import { ConfirmDanger } from "../../ui/dialog";
import { Card, Facts, Loaded, SkeletonRows } from "../../ui/feedback";
import { Form, useForm } from "../../ui/form";
import { Time } from "../../ui/time";
import { CronField } from "../cron/helper";
import { Output } from "../functions/output";
import { RanStatus, Result, type Ran } from "../functions/run";
import { ScheduleStatus, type Schedule } from "./list";
import { ParamsField, toParams } from "./params";

const t = text.schedules;

export default function SchedulePage({ id }: { id: string }) {
  const schedule_id = Number(id);
  const isNumber = Number.isInteger(schedule_id) && schedule_id > 0;
  const found = useResource("/v1/scheduled-functions/{schedule_id}", { path: { schedule_id: isNumber ? schedule_id : 1 } }, { pollMs: 6_000, isOn: isNumber });
  if (!isNumber || found.error?.status === 404) return <NotFound />;
  return (
    <Loaded of={found} skeleton={<SkeletonRows rows={4} />}>
      {(data) => <One key={data.id} schedule={data} />}
    </Loaded>
  );
}

function One({ schedule }: { schedule: Schedule }) {
  const [ran, setRan] = useState<Ran>();
  const path = { schedule_id: schedule.id };
  const refreshes = ["/v1/scheduled-functions"];
  const run = useAction(() => api.post("/v1/scheduled-functions/{schedule_id}/run", { path }), { refreshes, onDone: setRan });
  const toggle = useAction(() => api.patch("/v1/scheduled-functions/{schedule_id}", { path, body: { enabled: !schedule.enabled } }), {
    done: (changed) => t.toggled(changed.name, changed.enabled),
    refreshes,
  });
  const why = whyNot("member");
  const Icon = schedule.enabled ? CirclePause : CirclePlay;
  return (
    <>
      <PageHead
        title={schedule.name}
        crumbs={[{ label: t.title, href: "/schedules" }]}
        status={<ScheduleStatus of={schedule} />}
        actions={
          <>
            <Button why={why} isBusy={toggle.isBusy} onClick={() => toggle.run()} icon={<Icon size={15} aria-hidden="true" />}>
              {schedule.enabled ? t.disable : t.enable}
            </Button>
            <Button kind="primary" why={why} isBusy={run.isBusy} onClick={() => run.run()} icon={<Play size={15} aria-hidden="true" />}>
              {t.run}
            </Button>
          </>
        }
      />
      <div class="grid-2">
        <div class="stack wide">
          {ran && schedule.functionName && (
            <Card title={t.ran} actions={<RanStatus ran={ran} />}>
              <Result key={ran.activationId} name={schedule.functionName} ran={ran} />
            </Card>
          )}
          <Edit schedule={schedule} />
          <Danger schedule={schedule} />
        </div>
        <Card title={text.fnSettings.details} foot={t.runHint}>
          <div class="stack">
            <Facts
              items={[
                [t.fn, schedule.functionName ? <a href={`/functions/${schedule.functionName}`}>{schedule.functionName}</a> : "–"],
                [t.nextRun, schedule.enabled ? <Time at={schedule.nextRunAt} /> : text.common.none],
                [t.lastRun, <Time at={schedule.lastRunAt} />],
                [t.runs, <span class="figures">{schedule.totalRuns}</span>],
                [text.common.created, <Time at={schedule.createdAt} />],
              ]}
            />
            {schedule.lastError && <Output text={schedule.lastError} name={`${schedule.name}-error`} label={t.lastError} isError />}
          </div>
        </Card>
      </div>
    </>
  );
}

function Edit({ schedule }: { schedule: Schedule }) {
  const initial = { cronSchedule: schedule.cronSchedule, timezone: schedule.timezone, params: JSON.stringify(schedule.params ?? {}, null, 2) };
  const form = useForm(
    initial,
    async ({ params, ...rest }) => api.patch("/v1/scheduled-functions/{schedule_id}", { path: { schedule_id: schedule.id }, body: { ...rest, params: toParams(params) } }),
    { done: t.saved, refreshes: ["/v1/scheduled-functions"] },
  );
  const values = form.values.value;
  return (
    <Card title={t.schedule}>
      <Form form={form} submit={t.save} why={whyNot("member")}>
        <CronField
          expression={values.cronSchedule}
          onExpression={(value) => form.set("cronSchedule", value)}
          timezone={values.timezone}
          onTimezone={(value) => form.set("timezone", value)}
          problem={form.problem("cronSchedule")}
          zoneProblem={form.problem("timezone")}
        />
        <ParamsField value={values.params} onChange={(value) => form.set("params", value)} problem={form.problem("params")} />
      </Form>
    </Card>
  );
}

function Danger({ schedule }: { schedule: Schedule }) {
  const { route } = useLocation();
  const [isAsking, setAsking] = useState(false);
  return (
    <Card title={text.fnSettings.danger} isDanger>
      <div class="row between wrap">
        <p class="soft grow">{t.deleteText}</p>
        <Button kind="danger" why={whyNot("member")} onClick={() => setAsking(true)}>
          {t.delete}
        </Button>
      </div>
      {isAsking && (
        <ConfirmDanger
          title={t.delete}
          button={`${t.delete} ${schedule.name}`}
          name={schedule.name}
          act={() => api.delete("/v1/scheduled-functions/{schedule_id}", { path: { schedule_id: schedule.id } })}
          onClose={() => setAsking(false)}
          done={t.deleted(schedule.name)}
          refreshes={["/v1/scheduled-functions?"]}
          onDone={() => route("/schedules")}
        >
          <p>{t.deleteText}</p>
        </ConfirmDanger>
      )}
    </Card>
  );
}
