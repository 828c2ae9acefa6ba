/** What an app prints: live, or a range of time that the server searches. The filters are part of the address. */

import { ScrollText } from "lucide-preact";
import { useLocation } from "preact-iso";
import { useEffect, useMemo, useState } from "preact/hooks";
import { useResource } from "../../../api/resource";
import { follow } from "../../../api/stream";
import type { Data, Item } from "../../../api/types";
import { text } from "../../../text";
import { ButtonLink } from "../../../ui/button";
import { Card, Empty, ErrorBox } from "../../../ui/feedback";
import { Select } from "../../../ui/form";
import { Lines } from "../../../ui/log/lines";
import { LogView } from "../../../ui/log/view";
import { Segments } from "../../../ui/tabs";
import type { TabProps } from "../project";
import type { Project } from "../state";

type AppLine = Item<Data<"/v1/projects/{name}/logs">>;

const RANGES = ["15m", "1h", "24h", "7d"];
const MOST = 1_000;

export default function Logs({ project }: TabProps) {
  if (project.slug !== "container") return <NoProcess project={project} />;
  return <AppLogs project={project} />;
}

function NoProcess({ project }: { project: Project }) {
  return (
    <Card>
      <Empty
        icon={<ScrollText size={20} />}
        action={
          <span class="row">
            <ButtonLink href={`/projects/${project.name}/deployments`}>{text.appLogs.toDeployments}</ButtonLink>
            <ButtonLink href={`/projects/${project.name}/visitors`}>{text.appLogs.toVisitors}</ButtonLink>
          </span>
        }
      >
        {text.appLogs.static}
      </Empty>
    </Card>
  );
}

/** The filters of the address, and a function that changes them. */
function useFilters() {
  const { query, path, route } = useLocation();
  const range = RANGES.includes(query["range"] ?? "") ? query["range"]! : "live";
  const set = (change: Record<string, string>) => {
    const next = new URLSearchParams({ ...query, ...change });
    for (const [name, value] of [...next]) if (!value || value === "live") next.delete(name);
    const search = next.toString();
    route(search ? `${path}?${search}` : path, true);
  };
  return { range, source: query["source"] ?? "", replica: query["replica"] ?? "", search: query["search"] ?? "", set };
}

function AppLogs({ project }: { project: Project }) {
  const filters = useFilters();
  const [typed, setTyped] = useState(filters.search);
  const { items, error, isLive } = useLogLines(project.name, filters.range, filters.search);
  const replicas = [...new Set(items.map((each) => each.replica))].filter(Boolean).sort();
  const lines = useShown(items, filters);
  const t = text.appLogs;
  useEffect(() => {
    const timer = setTimeout(() => typed !== filters.search && filters.set({ search: typed }), 300);
    return () => clearTimeout(timer);
  }, [typed]);
  return (
    <div class="stack">
      <div class="row wrap">
        <Segments
          label={t.range}
          value={filters.range}
          options={[{ value: "live", label: t.live }, ...RANGES.map((value) => ({ value, label: value }))]}
          onChange={(range) => filters.set({ range })}
        />
        <span class="log-filter">
          <Select
            label={t.source}
            value={filters.source}
            options={[{ value: "", label: t.allSources }, ...Object.entries(t.sources).map(([value, label]) => ({ value, label }))]}
            onChange={(source) => filters.set({ source })}
          />
        </span>
        {replicas.length > 1 && (
          <span class="log-filter">
            <Select label={t.replica} value={filters.replica} options={[{ value: "", label: t.allReplicas }, ...replicas.map((value) => ({ value, label: value }))]} onChange={(replica) => filters.set({ replica })} />
          </span>
        )}
        <input
          class="input log-search"
          type="search"
          aria-label={filters.range === "live" ? t.searchLive : t.search}
          placeholder={filters.range === "live" ? t.searchLive : t.search}
          value={typed}
          onInput={(event) => setTyped(event.currentTarget.value)}
        />
        {items.length >= MOST && !isLive && <span class="soft small">{t.limited}</span>}
      </div>
      {error && <ErrorBox error={error} />}
      <LogView key={filters.range} lines={lines} name={`${project.name}-${filters.range}`} isLive={isLive} isTall note={isLive ? t.waiting : t.nothing} />
    </div>
  );
}

/** Lines of the live stream, or of a range; the server searches a range. */
function useLogLines(name: string, range: string, search: string) {
  const isLive = range === "live";
  const [streamed, setStreamed] = useState<AppLine[]>([]);
  const read = useResource(
    "/v1/projects/{name}/logs",
    { path: { name }, query: { since: isLive ? undefined : range, search: search || undefined, limit: MOST } as never },
    { pollMs: 15_000, isOn: !isLive },
  );
  useEffect(() => {
    if (!isLive) return undefined;
    setStreamed([]);
    let waiting: AppLine[] = [];
    let frame = 0;
    const show = () => {
      const fresh = waiting;
      waiting = [];
      frame = 0;
      setStreamed((before) => [...before, ...fresh].slice(-20_000));
    };
    const stop = follow("/v1/projects/{name}/logs/stream", { path: { name }, query: { tail: 1_000 } }, {
      onEvent: (event) => {
        if (event.name !== "log") return;
        waiting.push(JSON.parse(event.data) as AppLine);
        frame ||= requestAnimationFrame(show);
      },
    });
    return () => (stop(), cancelAnimationFrame(frame));
  }, [name, isLive]);
  return { items: isLive ? streamed : (read.data?.items ?? []), error: isLive ? undefined : read.error, isLive };
}

/** The lines that pass the filters, with their time and source in front. */
function useShown(items: AppLine[], { range, source, replica, search }: { range: string; source: string; replica: string; search: string }): Lines {
  const lines = useMemo(() => new Lines(), [range, source, replica, search]);
  const done = useMemo(() => ({ last: undefined as AppLine | undefined }), [lines]);
  const needle = range === "live" ? search.toLowerCase() : "";
  useEffect(() => {
    const from = done.last ? items.lastIndexOf(done.last) + 1 : 0;
    if (from === 0 && lines.items.length > 0) lines.clear();
    for (const each of items.slice(from)) {
      const isWanted = (!source || each.stream === source) && (!replica || each.replica === replica) && (!needle || each.message.toLowerCase().includes(needle));
      if (isWanted) lines.push(`${prefix(each)}${each.message}`, `${each.timestamp} ${each.stream} ${each.replica}`);
    }
    done.last = items.at(-1);
  }, [items, lines]);
  return lines;
}

const MARKS: Record<string, string> = { stderr: "\x1b[31merr\x1b[0m ", system: "\x1b[36msys\x1b[0m ", stdout: "\x1b[2mout\x1b[0m " };

function prefix(line: AppLine): string {
  const time = new Date(line.timestamp).toLocaleTimeString("en-GB", { hour12: false });
  return `\x1b[2m${time}\x1b[0m ${MARKS[line.stream] ?? ""}`;
}
