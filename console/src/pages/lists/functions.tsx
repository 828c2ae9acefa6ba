/** The list of functions. */

import { SquareFunction } from "lucide-preact";
import { useResource } from "../../api/resource";
import { PageHead } from "../../frame/page";
import { hasPage } from "../../pages";
import { text } from "../../text";
import { CodeBlock, Copy } from "../../ui/copy";
import { Empty, Loaded } from "../../ui/feedback";
import { Table } from "../../ui/table";
import { Time } from "../../ui/time";
import { CreateButton } from "./create";

export default function Functions() {
  const list = useResource("/v1/functions", { query: { pageSize: 100 } }, { pollMs: 15_000 });
  const create = <CreateButton href="/functions/new" label={text.functions.create} />;
  return (
    <>
      <PageHead title={text.functions.title} count={list.data?.total} actions={create} />
      <Loaded of={list}>
        {({ items }) =>
          items.length === 0 ? (
            <Empty icon={<SquareFunction size={20} />} action={create} snippet={<CodeBlock code={text.fn.snippet(location.origin)} label={text.functions.create} />}>
              {text.functions.empty}
            </Empty>
          ) : (
            <Table
              label={text.functions.title}
              rows={items}
              keyOf={(each) => each.id}
              hrefOf={hasPage("/functions/x") ? (each) => `/functions/${each.name}` : undefined}
              filter={(each) => `${each.name} ${each.runtime}`}
              columns={[
                { name: text.common.name, of: (each) => each.name, sort: (each) => each.name },
                { name: text.functions.runtime, of: (each) => <span class="mono">{each.runtime}</span>, sort: (each) => each.runtime },
                { name: text.functions.version, of: (each) => `v${each.currentVersion}`, sort: (each) => each.currentVersion, isNumber: true },
                { name: text.fn.apiAddress, of: (each) => <Copy value={location.origin + each.endpoint} shown={each.endpoint} isMono />, isHiddenOnPhone: true },
                { name: text.common.updated, of: (each) => <Time at={each.updatedAt} />, sort: (each) => each.updatedAt },
              ]}
            />
          )
        }
      </Loaded>
    </>
  );
}
