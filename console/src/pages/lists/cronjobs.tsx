/** The list of cronjobs. */

import { Clock } from "lucide-preact";
import { useResource } from "../../api/resource";
import { PageHead } from "../../frame/page";
import { hasPage } from "../../pages";
import { text } from "../../text";
import { CodeBlock } from "../../ui/copy";
import { Empty, Loaded } from "../../ui/feedback";
import { Status } from "../../ui/status";
import { Table } from "../../ui/table";
import { Time } from "../../ui/time";
import { CronText } from "../cron/helper";
import { jobState } from "../cronjobs/cronjob";
import { CreateButton } from "./create";

const MOST_WORDS = 25; // rows whose expression is told in words

export default function Cronjobs() {
  const list = useResource("/v1/cronjobs", { query: { pageSize: 100 } }, { pollMs: 10_000 });
  const create = <CreateButton href="/cronjobs/new" label={text.cronjobs.create} />;
  return (
    <>
      <PageHead title={text.cronjobs.title} count={list.data?.total} actions={create} />
      <Loaded of={list}>
        {({ items }) =>
          items.length === 0 ? (
            <Empty icon={<Clock size={20} />} action={create} snippet={<CodeBlock code={text.jobs.snippet} label={text.cronjobs.create} />}>
              {text.cronjobs.empty}
            </Empty>
          ) : (
            <Table
              label={text.cronjobs.title}
              rows={items}
              keyOf={(each) => each.id}
              hrefOf={hasPage("/cronjobs/x") ? (each) => `/cronjobs/${each.name}` : undefined}
              filter={(each) => `${each.name} ${each.cronSchedule} ${each.status}`}
              columns={[
                { name: text.common.name, of: (each) => each.name, sort: (each) => each.name },
                { name: text.common.status, of: (each) => <Status of={jobState(each.status)} />, sort: (each) => each.status },
                { name: text.cronjobs.schedule, of: (each) => <CronText expression={each.cronSchedule ?? ""} withWords={items.length <= MOST_WORDS} /> },
                { name: text.jobs.source, of: (each) => text.jobs.sources[each.imageSource ?? ""] ?? each.imageSource ?? "–", isHiddenOnPhone: true },
                { name: text.cronjobs.lastRun, of: (each) => <Time at={each.runStats.lastRunAt} />, sort: (each) => each.runStats.lastRunAt },
                {
                  name: text.cronjobs.nextRun,
                  of: (each) => (each.isActive ? <Time at={each.runStats.nextRunAt} /> : <span class="soft">{text.common.none}</span>),
                  sort: (each) => each.runStats.nextRunAt,
                },
                { name: text.cronjobs.runs, of: (each) => text.cronjobs.runsText(each.runStats.totalRuns, each.runStats.failedRuns), sort: (each) => each.runStats.totalRuns, isNumber: true },
              ]}
            />
          )
        }
      </Loaded>
    </>
  );
}
