/** What operators did. */

import { History } from "lucide-preact";
import { useState } from "preact/hooks";
import { useAction } from "../../api/actions";
import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import type { Data, Item } from "../../api/types";
import { text } from "../../text";
import { Button } from "../../ui/button";
import { Empty, Loaded } from "../../ui/feedback";
import { Table } from "../../ui/table";
import { Time } from "../../ui/time";

const t = text.operator;
type Act = Item<Data<"/v1/operator/activity">>;

export default function OperatorActivity() {
  const first = useResource("/v1/operator/activity", { query: { limit: 50 } }, { pollMs: 15_000 });
  const [older, setOlder] = useState<Act[]>([]);
  const [next, setNext] = useState<string | null>();
  const cursor = next === undefined ? first.data?.nextCursor : next;
  const more = useAction(async () => {
    const page = await api.get("/v1/operator/activity", { query: { limit: 50, cursor: cursor ?? "" } });
    setOlder([...older, ...page.items]);
    setNext(page.nextCursor);
  });
  return (
    <Loaded of={first}>
      {({ items }) => {
        const known = new Set(items.map((each) => each.id));
        const rows = [...items, ...older.filter((each) => !known.has(each.id))];
        if (rows.length === 0) return <Empty icon={<History size={20} />}>{t.activityEmpty}</Empty>;
        return (
          <div class="stack">
            <Table
              label={t.tabs.activity}
              rows={rows}
              keyOf={(each) => each.id}
              filter={(each) => `${each.action} ${each.actor.name} ${each.target.kind} ${each.target.name}`}
              columns={[
                { name: t.what, of: (each) => <code class="breaks">{each.action}</code>, sort: (each) => each.action },
                { name: t.target, of: (each) => <span class="breaks">{`${each.target.kind} ${each.target.name}`}</span> },
                { name: t.actor, of: (each) => each.actor.name, sort: (each) => each.actor.name },
                { name: t.when, of: (each) => <Time at={each.createdAt} />, sort: (each) => each.createdAt },
              ]}
            />
            {cursor && (
              <div class="feed-more">
                <Button size="small" isBusy={more.isBusy} onClick={() => more.run()}>
                  {t.more}
                </Button>
              </div>
            )}
          </div>
        );
      }}
    </Loaded>
  );
}
