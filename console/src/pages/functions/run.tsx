/** Runs a function with parameters, and shows its result, output and duration. */

import { Play } from "lucide-preact";
import { useEffect, useState } from "preact/hooks";
import { useAction } from "../../api/actions";
import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import type { Data, Item } from "../../api/types";
import { shortDuration } from "../../lib/format";
import { text } from "../../text";
import { Button } from "../../ui/button";
import { CodeBlock, Copy } from "../../ui/copy";
import { Editor } from "../../ui/editor/editor";
import { Card, Empty, ErrorBox, Facts, Notice } from "../../ui/feedback";
import { Status } from "../../ui/status";
import { keepParams, readParams } from "./drafts";
import type { Fn } from "./function";
import { Output } from "./output";

export type Ran = Data<"/v1/functions/{name}/invoke", "post">;
export type Invocation = Item<Data<"/v1/functions/{name}/invocations">>;

const t = text.fnRun;
const FILE = "params.json";
const LOOKS_FOR_LOGS = 12; // times, half a second apart

/** Return why a text is not JSON, in the words of the browser. */
export function jsonProblem(given: string): string | undefined {
  try {
    JSON.parse(given || "{}");
    return undefined;
  } catch (error) {
    return t.invalid((error as Error).message);
  }
}

/** JSON to read: control characters and marks that turn text are written as escapes. */
export function readable(value: unknown): string {
  const escaped = (each: string) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return (JSON.stringify(value, null, 2) ?? "null").replace(/[\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g, escaped);
}

export function RunPanel({ fn }: { fn: Fn }) {
  const [params, setParams] = useState(() => readParams(fn.name));
  const [ran, setRan] = useState<Ran>();
  const problem = jsonProblem(params);
  const run = useAction(
    async () => {
      keepParams(fn.name, params);
      return api.post("/v1/functions/{name}/invoke", { path: { name: fn.name }, body: { params: JSON.parse(params || "{}") } as never });
    },
    { isQuiet: true, onDone: setRan, refreshes: [`/v1/functions/${fn.name}/invocations`, `/v1/functions/${fn.name}/metrics`] },
  );
  return (
    <div class="grid-2 even run-panel">
      <Card
        title={t.params}
        isFlush
        actions={
          <Button size="small" kind="primary" isDisabled={problem !== undefined} isBusy={run.isBusy} onClick={() => run.run()} icon={<Play size={13} aria-hidden="true" />}>
            {t.run}
          </Button>
        }
        foot={problem ? <span class="problem-line">{problem}</span> : <span>{t.paramsHint}</span>}
      >
        <Editor label={t.params} files={{ [FILE]: params }} isSingle onChange={(files) => setParams(files[FILE] ?? "")} onSave={() => keepParams(fn.name, params)} />
      </Card>
      <Card title={t.result} actions={run.isBusy ? <Status of="deploying" word={t.running} /> : ran && <RanStatus ran={ran} />}>
        {run.error && <ErrorBox error={run.error} />}
        {ran ? <Result key={ran.activationId} name={fn.name} ran={ran} /> : !run.error && <Empty icon={<Play size={20} />}>{t.nothing}</Empty>}
      </Card>
    </div>
  );
}

export function RanStatus({ ran }: { ran: Ran }) {
  return <Status of={ran.status === "success" ? "succeeded" : "failed"} word={ran.status === "success" ? t.succeeded : t.failed} />;
}

/** The record of a call is written shortly after its answer. */
function useRecord(name: string, activationId: string): { record: Invocation | undefined; isOver: boolean } {
  const [looks, setLooks] = useState(0);
  const list = useResource("/v1/functions/{name}/invocations", { path: { name }, query: { pageSize: 20 } });
  const record = list.data?.items.find((each) => each.activationId === activationId);
  useEffect(() => {
    if (record || looks >= LOOKS_FOR_LOGS) return undefined;
    const timer = setTimeout(() => void list.reload().then(() => setLooks(looks + 1)), looks === 0 ? 50 : 500);
    return () => clearTimeout(timer);
  }, [record, looks]);
  return { record, isOver: looks >= LOOKS_FOR_LOGS };
}

export function Result({ name, ran }: { name: string; ran: Ran }) {
  const { record, isOver } = useRecord(name, ran.activationId);
  return (
    <div class="stack">
      <Facts
        items={[
          [t.duration, <span class="figures">{shortDuration(ran.durationMs)}</span>],
          [t.start, record ? (record.coldStart ? t.cold : t.warm) : "–"],
          [t.version, `v${ran.version}`],
          [t.activation, <Copy value={ran.activationId} shown={ran.activationId.slice(0, 8)} isMono />],
        ]}
      />
      {ran.error && <Output text={ran.error} name={`${name}-error`} label={t.error} isError />}
      {ran.status === "success" && <CodeBlock code={readable(ran.result)} label={t.result} wraps />}
      {record ? <CallOutput name={name} record={record} /> : <p class="soft small">{isOver ? t.lateOutput : t.waiting}</p>}
    </div>
  );
}

/** What a call printed, both streams with their names. */
export function CallOutput({ name, record }: { name: string; record: Invocation }) {
  const file = `${name}-${record.activationId}`;
  return (
    <>
      {record.logsCut && <Notice kind="warn">{text.invocations.cut}</Notice>}
      {record.logsDropped && <Notice kind="warn">{text.invocations.dropped}</Notice>}
      {record.stdout && <Output text={record.stdout} name={`${file}-stdout`} label={t.stdout} />}
      {record.stderr && <Output text={record.stderr} name={`${file}-stderr`} label={t.stderr} />}
      {!record.stdout && !record.stderr && !record.logsCut && <p class="soft small">{t.noOutput}</p>}
    </>
  );
}
