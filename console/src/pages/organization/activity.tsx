/** What happens in the organization, live. */

import { Activity as ActivityIcon, Bot, Clock, Database, GitBranch, Globe, KeyRound, ShieldAlert, SquareFunction, User, type LucideIcon } from "lucide-preact";
import { useLocation } from "preact-iso";
import { useEffect, useMemo, useState } from "preact/hooks";
import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import { organizationId } from "../../api/session";
import { follow } from "../../api/stream";
import type { Data, Item } from "../../api/types";
import { PageHead } from "../../frame/page";
import { hasPage } from "../../pages";
import { text } from "../../text";
import { Button } from "../../ui/button";
import { Card, Empty, Loaded } from "../../ui/feedback";
import { Time } from "../../ui/time";

export type Happening = Item<Data<"/v1/activity">>;

const ICONS: Record<string, LucideIcon> = {
  project: GitBranch, repository: GitBranch, function: SquareFunction, database: Database, cronjob: Clock, schedule: Clock,
  monitor: ActivityIcon, alert: ShieldAlert, domain: Globe, token: KeyRound, member: User, invitation: User,
};
const PLACES: Record<string, string> = { project: "/projects/", function: "/functions/", database: "/databases/", cronjob: "/cronjobs/" };

/** "project.created" as a verb: "created". */
function wordsOf(action: string): string {
  return text.activity.acts[action] ?? action.slice(action.indexOf(".") + 1).replaceAll("_", " ");
}

export default function ActivityPage() {
  const { query, route, path } = useLocation();
  const first = useResource("/v1/activity", { query: { limit: 50 } });
  const [older, setOlder] = useState<Happening[]>([]);
  const [next, setNext] = useState<string | null>();
  const [isBusy, setBusy] = useState(false);
  const { fresh, isLive } = useLive();
  const wanted = (query["filter"] ?? "").toLowerCase();
  const all = useMemo(() => unique([...fresh, ...(first.data?.items ?? []), ...older]), [fresh, first.data, older]);
  const shown = wanted ? all.filter((each) => JSON.stringify([each.action, each.actor.name, each.target]).toLowerCase().includes(wanted)) : all;
  const cursor = next === undefined ? first.data?.nextCursor : next;
  const freshIds = new Set(fresh.map((each) => each.id));
  const more = async () => {
    if (!cursor) return;
    setBusy(true);
    const page = await api.get("/v1/activity", { query: { limit: 50, cursor } }).finally(() => setBusy(false));
    setOlder([...older, ...page.items]);
    setNext(page.nextCursor);
  };
  const t = text.activity;
  return (
    <>
      <PageHead
        title={t.title}
        status={
          <span class="live-dot" data-on={isLive}>
            {t.live}
          </span>
        }
        actions={
          <input
            class="input log-search"
            type="search"
            aria-label={t.filter}
            placeholder={t.filter}
            value={query["filter"] ?? ""}
            onInput={(event) => route(event.currentTarget.value ? `${path}?filter=${encodeURIComponent(event.currentTarget.value)}` : path, true)}
          />
        }
      />
      <Card isFlush>
        <Loaded of={first}>
          {() =>
            shown.length === 0 ? (
              <Empty icon={<ActivityIcon size={20} />}>{wanted ? text.common.noMatch(wanted) : t.empty}</Empty>
            ) : (
              <ol class="feed" aria-live="polite" aria-label={t.title}>
                {shown.map((each) => (
                  <Entry key={each.id} happening={each} isFresh={freshIds.has(each.id)} />
                ))}
              </ol>
            )
          }
        </Loaded>
      </Card>
      {cursor && (
        <p class="feed-more">
          <Button isBusy={isBusy} onClick={() => void more()}>
            {t.more}
          </Button>
        </p>
      )}
    </>
  );
}

function unique(items: Happening[]): Happening[] {
  const seen = new Set<number>();
  return items.filter((each) => !seen.has(each.id) && seen.add(each.id)).sort((a, b) => b.id - a.id);
}

/** Happenings since the page was opened. */
function useLive(): { fresh: Happening[]; isLive: boolean } {
  const [fresh, setFresh] = useState<Happening[]>([]);
  const [isLive, setLive] = useState(false);
  const organization = organizationId.value;
  useEffect(() => {
    setFresh([]);
    return follow("/v1/activity/stream", {}, {
      onOpen: () => setLive(true),
      onError: () => setLive(false),
      onEvent: (event) => {
        if (event.name === "activity") setFresh((before) => [JSON.parse(event.data) as Happening, ...before].slice(0, 500));
      },
    });
  }, [organization]);
  return { fresh, isLive };
}

function Entry({ happening, isFresh }: { happening: Happening; isFresh: boolean }) {
  const { action, actor, target, details, createdAt } = happening;
  const Icon = actor.userId === null ? Bot : (ICONS[target.kind] ?? ActivityIcon);
  const href = PLACES[target.kind] ? `${PLACES[target.kind]}${target.name}` : undefined;
  const facts = Object.entries(details as Record<string, unknown>).filter(([, value]) => value !== null && value !== "" && !(Array.isArray(value) && value.length === 0));
  const t = text.activity;
  return (
    <li class={isFresh ? "fresh" : ""}>
      <Icon size={16} aria-hidden="true" />
      <div class="what">
        <p>
          <strong>{actor.name}</strong> {wordsOf(action)} <span class="soft">{t.kinds[target.kind] ?? target.kind.replaceAll("_", " ")}</span>{" "}
          {href && hasPage(href) && !action.endsWith(".deleted") ? <a href={href}>{target.name}</a> : <span class="strong">{target.name}</span>}
        </p>
        <p class="soft small">
          {[actor.token && t.byToken(actor.token.name), actor.address && t.from(actor.address), ...facts.map(([name, value]) => `${name}: ${shortOf(value)}`)].filter(Boolean).join(" · ")}
        </p>
      </div>
      <span class="soft small">
        <Time at={createdAt} />
      </span>
    </li>
  );
}

function shortOf(value: unknown): string {
  const words = Array.isArray(value) ? value.join(", ") : typeof value === "object" ? JSON.stringify(value) : String(value);
  return words.length > 160 ? `${words.slice(0, 160)}…` : words;
}
