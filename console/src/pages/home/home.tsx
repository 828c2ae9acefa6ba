/** Home: resources at a glance, recent deployments, incidents, usage; and the guide of the first run. */

import { Activity, ArrowRight, Boxes, Clock, Database, SquareFunction, type LucideIcon } from "lucide-preact";
import { useRef } from "preact/hooks";
import { useResource } from "../../api/resource";
import { organizationId } from "../../api/session";
import type { Data, Item } from "../../api/types";
import { PageHead } from "../../frame/page";
import { count } from "../../lib/format";
import { text } from "../../text";
import { ButtonLink } from "../../ui/button";
import { Meter } from "../../ui/chart/sparkline";
import { Card, Empty, Loaded, Skeleton } from "../../ui/feedback";
import { lookOf, Status } from "../../ui/status";
import { Time } from "../../ui/time";
import { stateOf } from "../lists/monitors";
import { deploymentState, projectState, shortCommit, type ProjectItem } from "../projects/state";
import { Guide } from "./guide";

export default function Home() {
  const projects = useResource("/v1/projects", { query: { limit: 50 } }, { pollMs: 8_000 });
  const functions = useResource("/v1/functions", { query: { pageSize: 100 } }, { pollMs: 30_000 });
  const databases = useResource("/v1/databases", { query: { pageSize: 100 } }, { pollMs: 15_000 });
  const cronjobs = useResource("/v1/cronjobs", { query: { pageSize: 100 } }, { pollMs: 15_000 });
  const monitors = useResource("/v1/monitors", {}, { pollMs: 15_000 });
  const me = useResource("/v1/me", {}, { pollMs: 120_000 });
  const organization = me.data?.organizations.find((each) => each.organizationId === organizationId.value);
  const isNew = projects.data?.items.length === 0;
  const startedNew = useRef<boolean>();
  startedNew.current ??= projects.data && isNew; // The guide stays at its place while it deploys the first site.
  return (
    <>
      <PageHead title={text.home.title} subtitle={<p class="soft">{organization?.name ?? " "}</p>} />
      <div class="stack wide">
        <div class="tiles">
          <Tile icon={Boxes} href="/projects" label={text.nav.projects} states={projects.data?.items.map(projectState)} isMore={projects.data?.nextCursor != null} />
          <Tile icon={SquareFunction} href="/functions" label={text.nav.functions} states={functions.data?.items.map(() => "ready")} total={functions.data?.total} />
          <Tile icon={Database} href="/databases" label={text.nav.databases} states={databases.data?.items.map((each) => each.status ?? "")} total={databases.data?.total} />
          <Tile icon={Clock} href="/cronjobs" label={text.nav.cronjobs} states={cronjobs.data?.items.map((each) => each.status ?? "")} total={cronjobs.data?.total} />
          <Tile icon={Activity} href="/monitors" label={text.nav.monitors} states={monitors.data?.map(stateOf)} />
        </div>
        {startedNew.current && <Guide />}
        <div class="grid-2">
          {!isNew && (
            <Card
              title={text.home.recent}
              isFlush
              actions={
                <ButtonLink kind="quiet" size="small" href="/projects" icon={<ArrowRight size={14} aria-hidden="true" />}>
                  {text.nav.projects}
                </ButtonLink>
              }
            >
              <Loaded of={projects}>{({ items }) => <Recent projects={items} />}</Loaded>
            </Card>
          )}
          <div class={isNew ? "grid-2 even spread" : "stack side-cards"}>
            <Card title={text.nav.monitors} isFlush>
              <Loaded of={monitors}>{(items) => <Incidents items={items} />}</Loaded>
            </Card>
            <UsageCard />
          </div>
        </div>
        {startedNew.current === false && <Guide />}
      </div>
    </>
  );
}

interface TileProps {
  icon: LucideIcon;
  href: string;
  label: string;
  states: string[] | undefined;
  total?: number | undefined;
  isMore?: boolean | undefined;
}

function Tile({ icon: Icon, href, label, states, total, isMore = false }: TileProps) {
  const looks = states?.map(lookOf) ?? [];
  const unwell = looks.filter((look) => look === "bad" || look === "warn").length;
  const busy = looks.filter((look) => look === "busy").length;
  return (
    <a class="tile" href={href}>
      <span class="row soft">
        <Icon size={15} aria-hidden="true" /> {label}
      </span>
      <strong class="figures">{states ? `${count(total ?? states.length)}${isMore ? "+" : ""}` : <Skeleton width={36} height={28} />}</strong>
      <span class="small">
        {states === undefined ? (
          <Skeleton width={70} />
        ) : states.length === 0 ? (
          <span class="soft">{text.home.noneYet}</span>
        ) : unwell ? (
          <Status of="failed" word={text.home.healthy(states.length - unwell, states.length)} />
        ) : busy ? (
          <Status of="deploying" />
        ) : (
          <Status of="live" word={text.home.healthy(1, 1)} />
        )}
      </span>
    </a>
  );
}

function Recent({ projects }: { projects: ProjectItem[] }) {
  const deployed = projects.filter((each) => each.latestDeployment).sort((a, b) => b.latestDeployment!.createdAt.localeCompare(a.latestDeployment!.createdAt));
  if (deployed.length === 0) return <Empty>{text.home.noDeployments}</Empty>;
  return (
    <ul class="lines">
      {deployed.slice(0, 8).map((each) => (
        <li key={each.id}>
          <a href={`/projects/${each.name}`}>
            <span class="grow cut">
              <strong>{each.name}</strong>
              <span class="soft small mono"> {shortCommit(each.latestDeployment!.commitId)}</span>
            </span>
            <Status of={each.latestDeployment!.status === "succeeded" ? projectState(each) : deploymentState(each.latestDeployment!.status)} />
            <span class="soft small when">
              <Time at={each.latestDeployment!.createdAt} />
            </span>
          </a>
        </li>
      ))}
    </ul>
  );
}

function Incidents({ items }: { items: Item<Data<"/v1/monitors">>[] }) {
  const down = items.filter((each) => lookOf(stateOf(each)) === "bad");
  if (items.length === 0) return <Empty>{text.home.noMonitors}</Empty>;
  if (down.length === 0) {
    return (
      <div class="well">
        <Status of="up" word={text.home.allWell} />
      </div>
    );
  }
  return (
    <ul class="lines">
      {down.map((each) => (
        <li key={each.id}>
          <a href={`/monitors/${each.id}`}>
            <span class="grow cut">{each.name}</span>
            <Status of="down" />
            <span class="soft small when">
              <Time at={each.lastHeartbeat?.time} />
            </span>
          </a>
        </li>
      ))}
    </ul>
  );
}

function UsageCard() {
  const usage = useResource("/v1/usage", {}, { pollMs: 60_000 });
  return (
    <Card title={text.home.usage} actions={usage.data && <span class="tag">{text.home.plan(usage.data.plan)}</span>}>
      <Loaded of={usage}>
        {({ usage: used }) => (
          <div class="usage">
            {Object.entries(used).map(([name, { used: now, limit }]) => (
              <div key={name} class="stack tight">
                <div class="row between small">
                  <span>{labelOf(name)}</span>
                  <span class="soft figures">{limit === null ? count(now) : text.home.usageOf(count(now), count(limit))}</span>
                </div>
                {limit !== null && <Meter used={now} limit={limit} label={labelOf(name)} />}
              </div>
            ))}
          </div>
        )}
      </Loaded>
    </Card>
  );
}

/** `scheduledFunctions` becomes "Scheduled functions". */
function labelOf(name: string): string {
  const words = name.replace(/([A-Z])/g, " $1").replaceAll("_", " ").toLowerCase();
  return words.charAt(0).toUpperCase() + words.slice(1);
}
