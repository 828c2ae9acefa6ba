/** The list of scheduled functions. */

import { CalendarClock } from "lucide-preact";
import { useResource } from "../../api/resource";
import type { Data } from "../../api/types";
import { PageHead } from "../../frame/page";
import { text } from "../../text";
import { CodeBlock } from "../../ui/copy";
import { Empty, Loaded } from "../../ui/feedback";
import { Status } from "../../ui/status";
import { Table } from "../../ui/table";
import { Time } from "../../ui/time";
import { CronText } from "../cron/helper";
import { CreateButton } from "../lists/create";

export type Schedule = Data<"/v1/scheduled-functions/{schedule_id}">;
const t = text.schedules;
const MOST_WORDS = 25; // rows whose expression is told in words

/** A schedule whose last run failed needs a look, though it goes on. */
export function scheduleState(each: Schedule): [state: string, word: string | undefined] {
  if (!each.enabled) return ["disabled", undefined];
  return each.lastStatus && each.lastStatus !== "success" ? ["attention", undefined] : ["ready", t.enabled];
}

export function ScheduleStatus({ of: each }: { of: Schedule }) {
  const [state, word] = scheduleState(each);
  return <Status of={state} word={word} />;
}

export default function Schedules() {
  const list = useResource("/v1/scheduled-functions", {}, { pollMs: 10_000 });
  const create = <CreateButton href="/schedules/new" label={t.create} />;
  return (
    <>
      <PageHead title={t.title} count={list.data?.length} actions={create} />
      <Loaded of={list}>
        {(items) =>
          items.length === 0 ? (
            <Empty icon={<CalendarClock size={20} />} action={create} snippet={<CodeBlock code={t.snippet} label={t.create} />}>
              {t.empty}
            </Empty>
          ) : (
            <Table
              label={t.title}
              rows={items}
              keyOf={(each) => each.id}
              hrefOf={(each) => `/schedules/${each.id}`}
              filter={(each) => `${each.name} ${each.functionName} ${each.cronSchedule}`}
              columns={[
                { name: text.common.name, of: (each) => each.name, sort: (each) => each.name },
                { name: text.common.status, of: (each) => <ScheduleStatus of={each} />, sort: (each) => scheduleState(each)[0] },
                { name: t.fn, of: (each) => (each.functionName ? <a href={`/functions/${each.functionName}`}>{each.functionName}</a> : "–"), sort: (each) => each.functionName },
                { name: t.schedule, of: (each) => <CronText expression={each.cronSchedule} timezone={each.timezone} withWords={items.length <= MOST_WORDS} /> },
                { name: t.lastRun, of: (each) => <Time at={each.lastRunAt} />, sort: (each) => each.lastRunAt },
                { name: t.nextRun, of: (each) => (each.enabled ? <Time at={each.nextRunAt} /> : <span class="soft">{text.common.none}</span>), sort: (each) => each.nextRunAt },
                { name: t.runs, of: (each) => each.totalRuns, sort: (each) => each.totalRuns, isNumber: true },
              ]}
            />
          )
        }
      </Loaded>
    </>
  );
}
