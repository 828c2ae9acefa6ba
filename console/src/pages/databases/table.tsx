/** One table: its first rows, its columns and its indexes. */

import { SquarePen } from "lucide-preact";
import { useLocation } from "preact-iso";
import { useEffect, useState } from "preact/hooks";
import { useAction } from "../../api/actions";
import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import type { Data } from "../../api/types";
import { bytes, compact } from "../../lib/format";
import { text } from "../../text";
import { ButtonLink } from "../../ui/button";
import { Card, Loaded, SkeletonRows } from "../../ui/feedback";
import { Segments } from "../../ui/tabs";
import { Table } from "../../ui/table";
import { QueryError, Result, type QueryResult } from "./result";
import { paths } from "./state";

type Details = Data<"/v1/databases/{name}/tables/{schema}/{table}">;

const t = text.database.query;

export function TableView({ name, schema, table }: { name: string; schema: string; table: string }) {
  const { query, path, route } = useLocation();
  const view = query["view"] ?? "rows";
  const details = useResource("/v1/databases/{name}/tables/{schema}/{table}", { path: { name, schema, table } });
  return (
    <Loaded of={details} skeleton={<SkeletonRows rows={5} />}>
      {(data) => (
        <>
          <div class="row between wrap">
            <div class="stack tight">
              <h2 class="mono-title">
                <span class="soft">{data.schema}.</span>
                {data.name}
              </h2>
              <p class="soft small figures">{factsOf(data)}</p>
            </div>
            <div class="row wrap">
              <Segments label={data.name} value={view} options={Object.entries(t.views).map(([value, label]) => ({ value, label }))} onChange={(next) => route(`${path}?view=${next}`, true)} />
              <ButtonLink size="small" href={`${paths(name, "query")}?sql=${encodeURIComponent(data.selectSql)}`} icon={<SquarePen size={14} aria-hidden="true" />}>
                {t.openInRunner}
              </ButtonLink>
            </div>
          </div>
          {view === "columns" ? <Columns data={data} /> : view === "indexes" ? <Indexes data={data} /> : <Rows name={name} sql={data.selectSql} />}
        </>
      )}
    </Loaded>
  );
}

function factsOf({ kind, rowEstimate, sizeBytes, comment }: Details): string {
  const rows = rowEstimate !== null && rowEstimate >= 0 ? t.estimate(compact(rowEstimate)) : "";
  return [kind, rows, sizeBytes === null ? "" : bytes(sizeBytes), comment ?? ""].filter(Boolean).join(" · ");
}

function Rows({ name, sql }: { name: string; sql: string }) {
  const [result, setResult] = useState<QueryResult>();
  const read = useAction(() => api.post("/v1/databases/{name}/query", { path: { name }, body: { sql, write: false } }), { isQuiet: true, onDone: setResult });
  useEffect(() => void read.run(), [sql]);
  if (read.error) return <QueryError error={read.error} sql={sql} />;
  return result ? <Result result={result} name={name} /> : <SkeletonRows rows={5} height={36} />;
}

function Columns({ data }: { data: Details }) {
  return (
    <Card isFlush>
      <Table
        label={t.columns}
        rows={data.columns}
        keyOf={(each) => each.name}
        columns={[
          {
            name: text.common.name,
            of: (each) => (
              <span class="row wrap">
                <code>{each.name}</code> {each.primaryKey && <span class="tag accent">{t.key}</span>}
              </span>
            ),
          },
          { name: t.type, of: (each) => <code>{each.type}</code> },
          { name: t.nullable, of: (each) => (each.nullable ? t.yes : t.no) },
          { name: t.default, of: (each) => (each.default === null ? <span class="soft">–</span> : <code class="breaks">{each.default}</code>) },
        ]}
      />
    </Card>
  );
}

function Indexes({ data }: { data: Details }) {
  if (data.indexes.length === 0) return <p class="soft">{t.noIndexes}</p>;
  return (
    <Card isFlush>
      <Table
        label={t.views["indexes"]!}
        rows={data.indexes}
        keyOf={(each) => each.name}
        columns={[
          {
            name: text.common.name,
            of: (each) => (
              <span class="row wrap">
                <code>{each.name}</code> {each.primary ? <span class="tag accent">{t.key}</span> : each.unique && <span class="tag">{t.unique}</span>}
              </span>
            ),
          },
          { name: t.columns, of: (each) => <code>{each.columns.join(", ")}</code> },
          { name: t.method, of: (each) => each.method },
          { name: text.database.backups.size, of: (each) => (each.sizeBytes === null ? "–" : bytes(each.sizeBytes)), isNumber: true },
        ]}
      />
    </Card>
  );
}
