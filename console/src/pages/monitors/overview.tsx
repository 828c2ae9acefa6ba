/** Uptime, response time, heartbeats, incidents and certificate of a monitor. */

import { ShieldCheck } from "lucide-preact";
import { useLocation } from "preact-iso";
import { useMemo } from "preact/hooks";
import { useResource } from "../../api/resource";
import type { Data, Item } from "../../api/types";
import { absolute, duration, percent } from "../../lib/format";
import { text } from "../../text";
import { ButtonLink } from "../../ui/button";
import { Chart, type Mark } from "../../ui/chart/chart";
import { Bars, type Bar } from "../../ui/chart/sparkline";
import { Card, Empty, Facts, Loaded } from "../../ui/feedback";
import { Status } from "../../ui/status";
import { Segments } from "../../ui/tabs";
import { Table } from "../../ui/table";
import { Time } from "../../ui/time";
import { stateOf } from "../lists/monitors";
import type { Monitor, TabProps } from "./monitor";

const t = text.monitor;
const FEWEST = 60; // bars of heartbeats
type Aggregate = Data<"/v1/monitors/{monitor_id}/aggregate">;
type Incident = Item<Data<"/v1/monitors/{monitor_id}/incidents">>;
type Heartbeat = Item<Data<"/v1/monitors/{monitor_id}/heartbeats">>;

export default function Overview({ monitor }: TabProps) {
  const { query, path: here, route } = useLocation();
  const hours = query["hours"] && query["hours"] in t.uptimes ? query["hours"] : "24";
  const path = { monitor_id: monitor.id };
  const aggregate = useResource("/v1/monitors/{monitor_id}/aggregate", { path, query: { hours: Number(hours) } }, { pollMs: 30_000 });
  const incidents = useResource("/v1/monitors/{monitor_id}/incidents", { path, query: { limit: 50 } }, { pollMs: 10_000 });
  const beats = useResource("/v1/monitors/{monitor_id}/heartbeats", { path, query: { limit: 90 } }, { pollMs: 5_000 });
  return (
    <div class="stack side-cards">
      <div class="row between wrap">
        <Totals monitor={monitor} aggregate={aggregate.data} />
        <Segments label={text.chart.ranges} value={hours} options={Object.entries(t.uptimes).map(([value, label]) => ({ value, label }))} onChange={(next) => route(`${here}?hours=${next}`, true)} />
      </div>
      <Loaded of={beats}>{(items) => <Beats items={items} />}</Loaded>
      <Loaded of={aggregate}>{(data) => <Response aggregate={data} beats={beats.data ?? []} incidents={incidents.data ?? []} />}</Loaded>
      <div class="grid-2">
        <Incidents items={incidents} id={monitor.id} />
        <Certificate monitor={monitor} />
      </div>
      {beats.data && beats.data.length > 0 && <BeatTable items={beats.data} />}
    </div>
  );
}

function Totals({ monitor, aggregate }: { monitor: Monitor; aggregate: Aggregate | undefined }) {
  const buckets = aggregate?.buckets ?? [];
  const down = buckets.reduce((sum, each) => sum + each.downCount, 0);
  const all = buckets.reduce((sum, each) => sum + each.upCount + each.downCount, 0);
  const timed = buckets.filter((each) => each.avgResponseTime !== null);
  const mean = timed.reduce((sum, each) => sum + each.avgResponseTime! * each.upCount, 0) / Math.max(1, timed.reduce((sum, each) => sum + each.upCount, 0));
  const uptime = aggregate?.uptimePercent;
  const values: [string, preact.ComponentChildren][] = [
    [t.now, <Status of={stateOf(monitor)} />],
    [t.uptime, uptime === null || uptime === undefined ? "–" : percent(uptime, 2)],
    [t.response, timed.length > 0 ? `${Math.round(mean)} ms` : "–"],
    [t.downCount, `${down} / ${all}`],
    [t.lastCheck, <Time at={monitor.lastHeartbeat?.time} />],
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

function lookOf(status: string): Bar["look"] {
  return { UP: "ok", DOWN: "bad" }[status.toUpperCase()] as Bar["look"] ?? "none";
}

function Beats({ items }: { items: Heartbeat[] }) {
  if (items.length === 0) return <Card>{t.noBeats}</Card>;
  const bars = [...items].reverse().map((each) => ({
    look: lookOf(each.status),
    title: `${absolute(each.time)}: ${each.status}${each.responseTime === null ? "" : `, ${each.responseTime} ms`} ${each.message}`,
  }));
  const empty: Bar[] = Array.from({ length: Math.max(0, FEWEST - bars.length) }, () => ({ look: "none", title: "" }));
  const failed = items.filter((each) => lookOf(each.status) === "bad").length;
  return (
    <Card title={t.beats} actions={<span class="soft small">{t.beatsOf(items.length)}</span>}>
      <Bars bars={[...empty, ...bars]} label={`${t.beatsOf(items.length)}: ${t.downCount} ${failed}`} />
      <div class="beats-foot">
        <Time at={items[items.length - 1]!.time} />
        <Time at={items[0]!.time} />
      </div>
    </Card>
  );
}

/** A new monitor has hardly a bucket: then the chart shows its single checks. */
function Response({ aggregate, beats, incidents }: { aggregate: Aggregate; beats: Heartbeat[]; incidents: Incident[] }) {
  const points = useMemo(() => {
    const buckets = aggregate.buckets.map((each) => ({ at: Date.parse(each.bucket) / 1_000, ms: each.avgResponseTime }));
    if (buckets.filter((each) => each.ms !== null).length > 3) return buckets;
    return [...beats].reverse().map((each) => ({ at: Date.parse(each.time) / 1_000, ms: lookOf(each.status) === "ok" ? each.responseTime : null }));
  }, [aggregate, beats]);
  const marks: Mark[] = incidents.map((each) => ({ at: Date.parse(each.startedAt) / 1_000, label: each.observed.message, href: `#incident-${each.id}`, look: "bad" }));
  return (
    <Card>
      <Chart title={t.response} unit="ms" times={points.map((each) => each.at)} series={[{ label: t.response, values: points.map((each) => each.ms) }]} marks={marks} />
    </Card>
  );
}

function Incidents({ items, id }: { items: ReturnType<typeof useResource<"/v1/monitors/{monitor_id}/incidents">>; id: number }) {
  const lasted = ({ startedAt, resolvedAt }: Incident) => duration((resolvedAt ? Date.parse(resolvedAt) : Date.now()) - Date.parse(startedAt));
  return (
    <Card title={t.incidents} isFlush>
      <Loaded of={items}>
        {(list) =>
          list.length === 0 ? (
            <Empty icon={<ShieldCheck size={20} />} action={<ButtonLink href={`/monitors/${id}/alerts`}>{t.noIncidentsAlert}</ButtonLink>}>
              {t.noIncidents}
            </Empty>
          ) : (
            <Table
              label={t.incidents}
              rows={list}
              keyOf={(each) => each.id}
              idOf={(each) => `incident-${each.id}`}
              columns={[
                { name: t.observed, of: (each) => <span class="breaks">{each.observed.message || each.observed.value}</span> },
                { name: t.began, of: (each) => <Time at={each.startedAt} />, sort: (each) => each.startedAt },
                { name: t.lasted, of: lasted, isNumber: true },
                { name: text.common.status, of: (each) => (each.resolvedAt ? <Status of="succeeded" word={text.status.completed} /> : <Status of="down" word={each.isFlapping ? t.flapping : t.ongoing} />) },
              ]}
            />
          )
        }
      </Loaded>
    </Card>
  );
}

function Certificate({ monitor: { ssl } }: { monitor: Monitor }) {
  if (!ssl) {
    return (
      <Card title={t.certificate}>
        <p class="soft">{t.noCertificate}</p>
      </Card>
    );
  }
  const state = ssl.daysUntilExpiry < 0 ? "failed" : ssl.daysUntilExpiry < 14 ? "attention" : "verified";
  return (
    <Card title={t.certificate} actions={<Status of={state} word={t.certificateDays(ssl.daysUntilExpiry)} />}>
      <Facts
        items={[
          [t.subject, <span class="breaks">{ssl.subject}</span>],
          [t.issuer, <span class="breaks">{ssl.issuer}</span>],
          [t.validTo, absolute(ssl.validTo)],
        ]}
      />
    </Card>
  );
}

function BeatTable({ items }: { items: Heartbeat[] }) {
  return (
    <Card title={t.checks} isFlush>
      <Table
        label={t.checks}
        rows={items.slice(0, 10)}
        keyOf={(each) => each.time}
        columns={[
          { name: text.common.status, of: (each) => <Status of={each.status} /> },
          { name: t.time, of: (each) => <Time at={each.time} /> },
          { name: t.response, of: (each) => (each.responseTime === null ? "–" : `${each.responseTime} ms`), isNumber: true },
          { name: t.message, of: (each) => <span class="soft breaks">{each.message}</span> },
        ]}
      />
    </Card>
  );
}
