/** The audit log of a project, including its former names. */

import { History } from "lucide-preact";
import { useMemo, useState } from "preact/hooks";
import { useAction } from "../../../api/actions";
import { api } from "../../../api/client";
import { useResource } from "../../../api/resource";
import { text } from "../../../text";
import { Button } from "../../../ui/button";
import { Card, Empty, Loaded } from "../../../ui/feedback";
import { Feed, unique, type Happening } from "../../organization/feed";
import type { TabProps } from "../project";

export default function ProjectActivity({ project: { name } }: TabProps) {
  const first = useResource("/v1/projects/{name}/audit-log", { path: { name }, query: { limit: 50 } }, { pollMs: 15_000 });
  const [older, setOlder] = useState<Happening[]>([]);
  const [next, setNext] = useState<string | null>();
  const cursor = next === undefined ? first.data?.nextCursor : next;
  const items = useMemo(() => unique([...(first.data?.items ?? []), ...older]), [first.data, older]);
  const more = useAction(async () => {
    const page = await api.get("/v1/projects/{name}/audit-log", { path: { name }, query: { limit: 50, cursor: cursor ?? "" } });
    setOlder([...older, ...page.items]);
    setNext(page.nextCursor);
  });
  return (
    <>
      <Card isFlush>
        <Loaded of={first}>{() => (items.length === 0 ? <Empty icon={<History size={20} />}>{text.projectTabs.activityEmpty}</Empty> : <Feed items={items} label={text.activity.title} />)}</Loaded>
      </Card>
      {cursor && (
        <p class="feed-more">
          <Button isBusy={more.isBusy} onClick={() => more.run()}>
            {text.activity.more}
          </Button>
        </p>
      )}
    </>
  );
}
