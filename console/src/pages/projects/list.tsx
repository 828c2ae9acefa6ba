/** The list of projects. */

import { Boxes, ExternalLink } from "lucide-preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { api } from "../../api/client";
import { refresh, useResource } from "../../api/resource";
import { PageHead } from "../../frame/page";
import { hostOf } from "../../lib/format";
import { text } from "../../text";
import { CodeBlock } from "../../ui/copy";
import { Empty, Loaded } from "../../ui/feedback";
import { Status } from "../../ui/status";
import { Table, type Column } from "../../ui/table";
import { Time } from "../../ui/time";
import { CreateButton } from "../lists/create";
import { projectState, shortCommit, type ProjectItem } from "./state";

const COLUMNS: Column<ProjectItem>[] = [
  { name: text.common.name, of: (each) => each.name, sort: (each) => each.name },
  { name: text.common.status, of: (each) => <Status of={projectState(each)} />, sort: projectState },
  {
    name: text.projects.address,
    of: (each) => (
      <a href={each.projectUrl} target="_blank" rel="noopener noreferrer" class="row">
        <span class="cut">{hostOf(each.projectUrl)}</span> <ExternalLink size={13} aria-hidden="true" />
      </a>
    ),
    sort: (each) => each.projectUrl,
  },
  { name: text.projects.kind, of: (each) => <span class="one-line">{each.slug ? (text.projects.kinds[each.slug] ?? each.slug) : "–"}</span>, sort: (each) => each.slug, isHiddenOnPhone: true },
  {
    name: text.projects.repository,
    of: (each) => <span class="soft cut">{each.repositoryName ?? text.projects.upload}</span>,
    sort: (each) => each.repositoryName,
    isWideOnly: true,
  },
  {
    name: text.projects.lastDeployment,
    of: (each) =>
      each.latestDeployment ? (
        <span class="row">
          {each.latestDeployment.commitId && <code>{shortCommit(each.latestDeployment.commitId)}</code>}
          <Time at={each.latestDeployment.createdAt} />
        </span>
      ) : (
        <Time at={null} />
      ),
    sort: (each) => each.latestDeployment?.createdAt,
  },
];

export default function Projects() {
  const first = useResource("/v1/projects", { query: { limit: 50 } }, { pollMs: 8_000 });
  const more = useMore(first.data?.nextCursor ?? null);
  const create = <CreateButton href="/projects/new" label={text.projects.create} />;
  useEffect(() => () => refresh("/v1/usage"), []);
  const rows = useMemo(() => [...(first.data?.items ?? []), ...more.items], [first.data, more.items]);
  return (
    <>
      <PageHead title={text.projects.title} count={first.data && more.cursor === null ? rows.length : undefined} actions={create} />
      <Loaded of={first}>
        {() =>
          rows.length === 0 ? (
            <Empty icon={<Boxes size={20} />} action={create} snippet={<CodeBlock code={text.projects.snippet(location.origin)} label={text.projects.create} />}>
              {text.projects.empty}
            </Empty>
          ) : (
            <Table
              label={text.projects.title}
              rows={rows}
              columns={COLUMNS}
              keyOf={(each) => each.id}
              hrefOf={(each) => `/projects/${each.name}`}
              filter={(each) => `${each.name} ${each.projectUrl} ${each.repositoryName ?? ""} ${projectState(each)}`}
              onEnd={more.cursor ? more.load : undefined}
              isLoadingMore={more.isLoading}
            />
          )
        }
      </Loaded>
    </>
  );
}

/** Pages after the first one, which is polled. */
function useMore(firstCursor: string | null) {
  const [items, setItems] = useState<ProjectItem[]>([]);
  const [next, setNext] = useState<string | null | undefined>(undefined);
  const [isLoading, setLoading] = useState(false);
  const cursor = next === undefined ? firstCursor : next;
  const load = async () => {
    if (!cursor || isLoading) return;
    setLoading(true);
    try {
      const page = await api.get("/v1/projects", { query: { limit: 50, cursor } });
      setItems((before) => [...before, ...page.items]);
      setNext(page.nextCursor);
    } finally {
      setLoading(false);
    }
  };
  return { items, cursor, isLoading, load: () => void load() };
}
