/** One database: its head, its tabs, and the tab that is open. */

import type { AnyComponent } from "preact";
import { lazy } from "preact-iso";
import { useResource } from "../../api/resource";
import { NotFound } from "../../frame/notfound";
import { PageHead } from "../../frame/page";
import { text } from "../../text";
import { Loaded, Notice, Skeleton, SkeletonRows } from "../../ui/feedback";
import { Status } from "../../ui/status";
import { Tabs } from "../../ui/tabs";
import { engineOf } from "../lists/databases";
import { isBusy, paths, versionOf, type TabProps } from "./state";

const t = text.database;

const TABS: { key: string; label: string; component: AnyComponent<TabProps> }[] = [
  { key: "", label: t.tabs.overview, component: lazy(() => import("./overview")) },
  { key: "metrics", label: t.tabs.metrics, component: lazy(() => import("./metrics")) },
  { key: "backups", label: t.tabs.backups, component: lazy(() => import("./backups")) },
  { key: "query", label: t.tabs.query, component: lazy(() => import("./query")) },
  { key: "settings", label: t.tabs.settings, component: lazy(() => import("./settings")) },
];

interface Props {
  name: string;
  tab?: string;
  schema?: string;
  table?: string;
}

export default function DatabasePage({ name, tab = "", schema, table }: Props) {
  const database = useResource("/v1/databases/{name}", { path: { name } }, { pollMs: 4_000 });
  const open = TABS.find((each) => each.key === tab);
  if (!open || database.error?.status === 404) return <NotFound />;
  const Open = open.component;
  const data = database.data;
  return (
    <>
      <PageHead
        title={name}
        crumbs={[{ label: text.databases.title, href: "/databases" }]}
        status={data ? <Status of={data.status} /> : <Skeleton width={70} />}
        subtitle={
          data ? (
            <p class="soft small">
              {engineOf(data.type, versionOf(data))} · {data.instanceType} · {t.visibilities[data.visibility]?.[0].toLowerCase()}
            </p>
          ) : (
            <Skeleton width={220} height={18} />
          )
        }
      />
      <Tabs label={name} tabs={TABS.map(({ key, label }) => ({ href: paths(name, key), label }))} />
      <Loaded of={database} skeleton={<SkeletonRows rows={4} />}>
        {(found) => (
          <div class="stack">
            {found.statusReason && <Notice kind={found.status === "running" ? "warn" : "bad"}>{found.statusReason}</Notice>}
            {!found.statusReason && isBusy(found) && <Notice>{t.updatingNotice}</Notice>}
            <Open database={found} name={name} schema={schema} table={table} />
          </div>
        )}
      </Loaded>
    </>
  );
}
