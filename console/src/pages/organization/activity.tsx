/** What happens in the organization, live. */

import { Activity as ActivityIcon } from "lucide-preact";
import { useLocation } from "preact-iso";
import { useEffect, useMemo, useState } from "preact/hooks";
import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import { organizationId } from "../../api/session";
import { follow } from "../../api/stream";
import { PageHead } from "../../frame/page";
import { text } from "../../text";
import { Button } from "../../ui/button";
import { Card, Empty, Loaded } from "../../ui/feedback";
import { Feed, unique, type Happening } from "./feed";

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
              <Feed items={shown} fresh={freshIds} label={t.title} />
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
