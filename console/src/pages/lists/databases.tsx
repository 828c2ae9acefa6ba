/** The list of databases. */

import { Database } from "lucide-preact";
import { useResource } from "../../api/resource";
import { PageHead } from "../../frame/page";
import { hasPage } from "../../pages";
import { text } from "../../text";
import { CodeBlock } from "../../ui/copy";
import { Empty, Loaded } from "../../ui/feedback";
import { Status } from "../../ui/status";
import { Table } from "../../ui/table";
import { Time } from "../../ui/time";
import { CreateButton } from "./create";

const ENGINES: Record<string, string> = { postgresql: "PostgreSQL", postgres: "PostgreSQL", mysql: "MySQL" };

export function engineOf(type: string, version: string | null): string {
  return `${ENGINES[type.toLowerCase()] ?? type} ${version ?? ""}`.trim();
}

export default function Databases() {
  const list = useResource("/v1/databases", { query: { pageSize: 100 } }, { pollMs: 10_000 });
  const create = <CreateButton href="/databases/new" label={text.databases.create} />;
  return (
    <>
      <PageHead title={text.databases.title} count={list.data?.total} actions={create} />
      <Loaded of={list}>
        {({ items }) =>
          items.length === 0 ? (
            <Empty icon={<Database size={20} />} action={create} snippet={<CodeBlock code={text.database.emptySnippet} />}>
              {text.databases.empty}
            </Empty>
          ) : (
            <Table
              label={text.databases.title}
              rows={items}
              keyOf={(each) => each.id}
              hrefOf={hasPage("/databases/x") ? (each) => `/databases/${each.name}` : undefined}
              filter={(each) => `${each.name} ${each.type} ${each.status}`}
              columns={[
                { name: text.common.name, of: (each) => each.name, sort: (each) => each.name },
                { name: text.common.status, of: (each) => <Status of={each.status} />, sort: (each) => each.status },
                { name: text.databases.engine, of: (each) => engineOf(each.type, each.version), sort: (each) => each.type },
                { name: text.databases.tier, of: (each) => each.instanceType, sort: (each) => each.instanceType },
                {
                  name: text.databases.size,
                  of: ({ serverDetails: { cpu, memory, disk } }) => <span class="figures">{`${cpu} CPU · ${memory} GB · ${disk} GB`}</span>,
                  isHiddenOnPhone: true,
                },
                { name: text.common.created, of: (each) => <Time at={each.createdAt} />, sort: (each) => each.createdAt },
              ]}
            />
          )
        }
      </Loaded>
    </>
  );
}
