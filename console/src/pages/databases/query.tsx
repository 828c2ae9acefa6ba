/** The SQL runner with a browser of tables. `/query` is the runner, `/query/SCHEMA/TABLE` a table. */

import { Eye, History, Play, Table2, TerminalSquare } from "lucide-preact";
import { useLocation } from "preact-iso";
import { useState } from "preact/hooks";
import { useAction } from "../../api/actions";
import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import { compact } from "../../lib/format";
import { whyNot } from "../../lib/roles";
import { text } from "../../text";
import { Button } from "../../ui/button";
import { CodeBlock } from "../../ui/copy";
import { Card, Empty, Loaded, Notice } from "../../ui/feedback";
import { Switch } from "../../ui/form";
import { Editor } from "../../ui/editor/editor";
import { forget, historyOf, remember } from "./history";
import { QueryError, Result } from "./result";
import { paths, type TabProps } from "./state";
import { TableView } from "./table";

const t = text.database.query;
const FIRST_TABLE = "CREATE TABLE ships (id serial PRIMARY KEY, name text NOT NULL)";

export default function QueryTab({ database, name, schema, table }: TabProps) {
  const why = whyNot("member");
  if (why) return <Notice>{why}</Notice>;
  if (database.status !== "running") return <Notice>{t.notRunning}</Notice>;
  return (
    <div class="studio">
      <Tables name={name} schema={schema} table={table} />
      <div class="stack">{schema && table ? <TableView key={`${schema}.${table}`} name={name} schema={schema} table={table} /> : <Runner name={name} />}</div>
    </div>
  );
}

function Tables({ name, schema, table }: Pick<TabProps, "name" | "schema" | "table">) {
  const list = useResource("/v1/databases/{name}/tables", { path: { name } }, { pollMs: 30_000 });
  const [wanted, setWanted] = useState("");
  return (
    <nav class="studio-tables" aria-label={t.tables}>
      <a class="studio-link" href={paths(name, "query")} aria-current={schema ? undefined : "page"}>
        <TerminalSquare size={14} aria-hidden="true" /> {t.runner}
      </a>
      <input class="input" type="search" placeholder={t.findTable} aria-label={t.findTable} value={wanted} onInput={(event) => setWanted(event.currentTarget.value)} />
      <Loaded of={list}>
        {({ items }) => (
          <ul>
            {items.length === 0 && <li class="soft small studio-note">{t.noTables}</li>}
            {items
              .filter((each) => `${each.schema}.${each.name}`.toLowerCase().includes(wanted.toLowerCase()))
              .slice(0, 500)
              .map((each) => {
                const Icon = each.kind === "view" ? Eye : Table2;
                const isOpen = each.schema === schema && each.name === table;
                return (
                  <li key={`${each.schema}.${each.name}`}>
                    <a class="studio-link" href={`${paths(name, "query")}/${encodeURIComponent(each.schema)}/${encodeURIComponent(each.name)}`} aria-current={isOpen ? "page" : undefined} title={each.comment ?? each.kind}>
                      <Icon size={14} aria-hidden="true" />
                      <span class="cut grow">
                        {each.schema !== "public" && <span class="soft">{each.schema}.</span>}
                        {each.name}
                      </span>
                      {each.rowEstimate !== null && each.rowEstimate >= 0 && <span class="soft small figures">{compact(each.rowEstimate)}</span>}
                    </a>
                  </li>
                );
              })}
          </ul>
        )}
      </Loaded>
    </nav>
  );
}

function Runner({ name }: { name: string }) {
  const { query } = useLocation();
  const [sql, setSql] = useState(query["sql"] ?? "");
  const [ran, setRan] = useState("");
  const [isWriting, setWriting] = useState(false);
  const [past, setPast] = useState(() => historyOf(name));
  const run = useAction(
    async (statement: string) => {
      setRan(statement);
      const write = isWriting;
      setWriting(false);
      setPast(remember(name, statement));
      return { statement, result: await api.post("/v1/databases/{name}/query", { path: { name }, body: { sql: statement, write } }) };
    },
    { isQuiet: true, refreshes: [`/v1/databases/${name}/tables`], onDone: setDone },
  );
  const [done, keep] = useState<{ statement: string; result: Parameters<typeof Result>[0]["result"] }>();
  function setDone(next: typeof done) {
    keep(next);
  }
  const start = () => sql.trim() && void run.run(sql);
  const press = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    event.stopPropagation();
    start();
  };
  return (
    <>
      <div class="sql-box" onKeyDownCapture={press}>
        <Editor files={{ "query.sql": sql }} onChange={(files) => setSql(files["query.sql"] ?? "")} isSingle label={t.sql} />
      </div>
      <div class="row between wrap sql-tools">
        <span class="row">
          <Button kind={isWriting ? "danger solid" : "primary"} isBusy={run.isBusy} isDisabled={!sql.trim()} onClick={start} icon={<Play size={14} aria-hidden="true" />}>
            {t.run}
          </Button>
          <kbd class="not-phone">{t.runHint}</kbd>
        </span>
        <Switch label={t.write} hint={isWriting ? t.writeHint : t.readOnly} isOn={isWriting} onChange={setWriting} why={whyNot("admin")} />
      </div>
      {run.error && <QueryError error={run.error} sql={ran} />}
      {!run.error && done && <Result key={done.statement} result={done.result} name={name} />}
      {!run.error && !done && <Start />}
      <Past past={past} onChoose={setSql} onClear={() => setPast(forget(name))} />
      <p class="soft small">{t.limits}</p>
    </>
  );
}

function Start() {
  return (
    <Card>
      <Empty icon={<TerminalSquare size={20} />} snippet={<CodeBlock code={FIRST_TABLE} label={t.sql} />}>
        {t.start} {t.noTablesHint}
      </Empty>
    </Card>
  );
}

function Past({ past, onChoose, onClear }: { past: string[]; onChoose: (sql: string) => void; onClear: () => void }) {
  return (
    <Card title={t.history} isFlush actions={past.length > 0 && <Button kind="quiet" size="small" onClick={onClear}>{t.clear}</Button>}>
      {past.length === 0 ? (
        <p class="soft small studio-note">{t.historyEmpty}</p>
      ) : (
        <ul class="past">
          {past.map((sql) => (
            <li key={sql}>
              <button type="button" class="past-line mono" title={sql} onClick={() => onChoose(sql)}>
                <History size={13} aria-hidden="true" />
                <span class="cut">{sql.replace(/\s+/g, " ").slice(0, 300)}</span>
              </button>
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}
