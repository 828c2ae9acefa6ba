/** The calls of a function, newest first and live; a click opens what a call printed. */

import { ChevronRight, Play } from "lucide-preact";
import { useLocation } from "preact-iso";
import { useEffect, useState } from "preact/hooks";
import { useResource } from "../../api/resource";
import { follow } from "../../api/stream";
import { plain } from "../../lib/ansi";
import { shortDuration } from "../../lib/format";
import { text } from "../../text";
import { Button, ButtonLink } from "../../ui/button";
import { CodeBlock, Copy } from "../../ui/copy";
import { Empty, Loaded, Notice } from "../../ui/feedback";
import { Status } from "../../ui/status";
import { Segments } from "../../ui/tabs";
import { Time } from "../../ui/time";
import type { TabProps } from "./function";
import { Output } from "./output";
import { CallOutput, type Invocation } from "./run";

const t = text.invocations;
const PAGE_SIZE = 30;

/** Read the list again shortly after calls have ended; many at once count as one. */
function useLive(name: string, isOn: boolean, reload: () => Promise<void>): boolean {
  const [isLive, setLive] = useState(false);
  useEffect(() => {
    if (!isOn) return undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const stop = follow(`/v1/functions/${name}/logs/stream`, {}, {
      onOpen: () => setLive(true),
      onEvent: (event) => {
        if (event.name === "invocation") timer ??= setTimeout(() => ((timer = undefined), void reload()), 400);
      },
      onError: () => setLive(false),
    });
    return () => (stop(), clearTimeout(timer), setLive(false));
  }, [name, isOn]);
  return isLive;
}

export default function Invocations({ fn, id }: TabProps) {
  const { route } = useLocation();
  const [page, setPage] = useState(1);
  const [shown, setShown] = useState("all");
  const list = useResource("/v1/functions/{name}/invocations", { path: { name: fn.name }, query: { page, pageSize: PAGE_SIZE } }, { pollMs: 30_000 });
  const isLive = useLive(fn.name, page === 1, list.reload);
  const open = (record: Invocation) => route(`/functions/${fn.name}/invocations${record.activationId === id ? "" : `/${record.activationId}`}`, true);
  return (
    <Loaded of={list}>
      {({ items, total }) => {
        if (total === 0) return <NoCalls url={fn.url} name={fn.name} />;
        const pages = Math.max(1, Math.ceil(total / PAGE_SIZE));
        const found = shown === "failed" ? items.filter((each) => !isOk(each)) : items;
        return (
          <div class="stack">
            <div class="row wrap">
              <Segments label={text.common.filter} value={shown} onChange={setShown} options={[{ value: "all", label: t.all }, { value: "failed", label: t.onlyFailed }]} />
              <span class="grow" />
              {isLive && <Status of="live" word={t.live} />}
            </div>
            {id && !items.some((each) => each.activationId === id) && <Notice>{t.notFound}</Notice>}
            <ul class="calls table-card">
              {found.map((record) => (
                <Call key={record.activationId} name={fn.name} record={record} isOpen={record.activationId === id} onToggle={() => open(record)} />
              ))}
              {found.length === 0 && <li class="table-end">{t.noFailed}</li>}
            </ul>
            {pages > 1 && (
              <div class="row end">
                <span class="soft small figures">{t.page(page, pages)}</span>
                <Button size="small" isDisabled={page === 1} onClick={() => setPage(page - 1)}>
                  {t.newer}
                </Button>
                <Button size="small" isDisabled={page >= pages} onClick={() => setPage(page + 1)}>
                  {t.older}
                </Button>
              </div>
            )}
          </div>
        );
      }}
    </Loaded>
  );
}

function NoCalls({ url, name }: { url: string; name: string }) {
  return (
    <Empty
      icon={<Play size={20} />}
      action={
        <ButtonLink kind="primary" href={`/functions/${name}/test`}>
          {text.fnRun.run}
        </ButtonLink>
      }
      snippet={<CodeBlock code={`curl '${url}?name=Ada'`} label={t.call} />}
    >
      {t.empty}
    </Empty>
  );
}

export function isOk(record: Invocation): boolean {
  return record.status === "success";
}

interface CallProps {
  name: string;
  record: Invocation;
  isOpen: boolean;
  onToggle: () => void;
}

function Call({ name, record, isOpen, onToggle }: CallProps) {
  const firstLine = plain((record.error || record.stdout || record.stderr).slice(0, 1_000).trimStart().split("\n", 1)[0]!).slice(0, 160);
  return (
    <li class="call" data-open={isOpen}>
      <button type="button" class="call-head" aria-expanded={isOpen} onClick={onToggle}>
        <ChevronRight size={14} aria-hidden="true" />
        <Status of={isOk(record) ? "succeeded" : "failed"} />
        <Time at={record.timestamp} />
        <span class="figures call-took">{shortDuration(record.duration)}</span>
        <span class="soft mono cut grow not-phone" dir="ltr">
          {firstLine}
        </span>
        {record.coldStart && <span class="tag not-phone">{text.fnRun.cold}</span>}
        <span class="soft small not-phone">{t.doors[record.door] ?? record.door}</span>
        <span class="soft small figures">v{record.version}</span>
      </button>
      {isOpen && (
        <div class="call-body stack">
          <div class="row wrap soft small">
            {text.fnRun.activation} <Copy value={record.activationId} isMono />
            {record.waitMs >= 1 && <span>{t.waited(shortDuration(record.waitMs))}</span>}
          </div>
          {record.error && <Output text={record.error} name={`${name}-error`} label={text.fnRun.error} isError />}
          <CallOutput name={name} record={record} />
        </div>
      )}
    </li>
  );
}
