/**
 * A log: only the rows in view exist, so that any number of lines scrolls well. Text of programs is shown as text: it
 * never becomes HTML, and marks that turn or hide text are removed.
 */

import { ArrowDownToLine, CircleAlert, Download, Search, WrapText } from "lucide-preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { parseAnsi } from "../../lib/ansi";
import { bytes } from "../../lib/format";
import { text } from "../../text";
import { Button } from "../button";
import { search, type Line, type Lines } from "./lines";
import { PhaseBar, PhaseHeading, phaseAt } from "./phases";

const ROW = 20;
const AROUND = 20; // rows above and below those in view
const LONGEST = 2_000; // characters of a line that are drawn

interface LogViewProps {
  lines: Lines;
  name: string; // of the file to download
  isLive?: boolean | undefined;
  isTall?: boolean | undefined;
  note?: string | undefined; // shown while there is no line
}

export function LogView({ lines, name, isLive = false, isTall = false, note }: LogViewProps) {
  const version = lines.version.value;
  const [isFollowing, setFollowing] = useState(isLive && !location.hash.startsWith("#L"));
  const [wraps, setWraps] = useState(false);
  const [wanted, setWanted] = useState("");
  const [current, setCurrent] = useState(0);
  const found = useMemo(() => search(lines.items, wanted), [wanted, version]);
  const errors = useMemo(() => lines.items.flatMap((line, at) => (line.isError ? [at] : [])), [version]);
  const view = useRef<HTMLDivElement>(null);
  const [seen, setSeen] = useState(lines.items.length);
  const [top, setTop] = useState(0);
  const hasPhases = lines.phases.length > 1;
  const phase = hasPhases ? phaseAt(lines.phases, firstInView(view.current, top, wraps)) : 0;
  // The phase that failed is the last one; commands before it may have printed errors and been repeated.
  const firstError = errors.find((at) => hasPhases && at >= lines.phases[lines.phases.length - 1]!.from) ?? errors[0];
  const show = (at: number, part = 1 / 3) => {
    setFollowing(false);
    view.current!.scrollTop = topOf(view.current!, at) - view.current!.clientHeight * part;
  };
  const step = (by: number) => {
    if (found.length === 0) return;
    const next = (current + by + found.length) % found.length;
    setCurrent(next);
    show(found[next]!);
  };
  useLayoutEffect(() => {
    if (!isFollowing) return;
    view.current!.scrollTop = view.current!.scrollHeight;
    setSeen(lines.items.length);
  }, [version, isFollowing, wraps]);
  useEffect(() => {
    const match = /^#L(\d+)$/.exec(location.hash);
    if (match && lines.items.length >= Number(match[1])) show(Number(match[1]) - 1);
  }, [lines.items.length > 0]);
  return (
    <div class={`log ${wraps ? "wraps" : ""}`}>
      <div class="log-tools" role="toolbar" aria-label={name}>
        <div class="with-icon">
          <Search size={14} aria-hidden="true" />
          <input
            class="input"
            type="search"
            placeholder={text.log.search}
            aria-label={text.log.search}
            value={wanted}
            onInput={(event) => (setWanted(event.currentTarget.value), setCurrent(0))}
            onKeyDown={(event) => event.key === "Enter" && (event.preventDefault(), step(event.shiftKey ? -1 : 1))}
          />
        </div>
        {wanted && <span class="soft small figures">{found.length ? text.log.matches(Math.min(current, found.length - 1) + 1, found.length) : text.log.noMatches}</span>}
        <span class="grow" />
        {firstError !== undefined && (
          <Button kind="quiet" size="small" onClick={() => show(firstError)} icon={<CircleAlert size={14} aria-hidden="true" />}>
            {text.log.firstError}
          </Button>
        )}
        {isLive && (
          <Button kind="quiet" size="small" isPressed={isFollowing} onClick={() => setFollowing(!isFollowing)} icon={<ArrowDownToLine size={14} aria-hidden="true" />}>
            {text.log.follow}
          </Button>
        )}
        <Button kind="quiet" size="small" isPressed={wraps} onClick={() => setWraps(!wraps)} label={text.log.wrap} icon={<WrapText size={14} aria-hidden="true" />} />
        <Button kind="quiet" size="small" onClick={() => download(lines, name)} label={text.log.download} icon={<Download size={14} aria-hidden="true" />} />
      </div>
      {hasPhases && <PhaseBar lines={lines} current={phase} onShow={(at) => show(at, 0)} />}
      <div class="log-wrap">
        {hasPhases && top > 0 && <PhaseHeading lines={lines} order={phase} />}
        <Rows
          lines={lines}
          view={view}
          top={top}
          isTall={isTall}
          wraps={wraps}
          found={found}
          current={found[current]}
          note={note}
          onScroll={(nextTop, isAtEnd) => {
            setTop(nextTop);
            if (isLive) setFollowing(isAtEnd);
            if (isAtEnd) setSeen(lines.items.length);
          }}
        />
        <div class="log-marks" aria-hidden="true">
          {errors.slice(0, 200).map((at) => (
            <i key={at} style={{ top: `${(at / lines.items.length) * 100}%` }} />
          ))}
        </div>
        {!isFollowing && isLive && lines.items.length > seen && (
          <span class="log-more">
            <Button size="small" kind="primary" onClick={() => setFollowing(true)}>
              {text.log.newLines(lines.items.length - seen)}
            </Button>
          </span>
        )}
      </div>
    </div>
  );
}

/** Return where a line begins; rows that are wrapped are higher than others. */
function topOf(box: HTMLElement, at: number): number {
  return box.querySelector<HTMLElement>(`.wraps [data-at="${at}"]`)?.offsetTop ?? at * ROW;
}

function firstInView(box: HTMLElement | null, top: number, wraps: boolean): number {
  if (!wraps || !box) return Math.ceil(top / ROW);
  const rows = [...box.querySelectorAll<HTMLElement>("[data-at]")];
  return Number(rows.find((row) => row.offsetTop >= top)?.dataset["at"] ?? Math.ceil(top / ROW));
}

interface RowsProps {
  lines: Lines;
  view: { current: HTMLDivElement | null };
  top: number;
  isTall: boolean;
  wraps: boolean;
  found: number[];
  current: number | undefined;
  note: string | undefined;
  onScroll: (top: number, isAtEnd: boolean) => void;
}

function Rows({ lines, view, top, isTall, wraps, found, current, note, onScroll }: RowsProps) {
  const total = lines.items.length;
  const height = view.current?.clientHeight ?? 600;
  const isVirtual = !wraps || total > 3_000;
  const from = isVirtual ? Math.max(0, Math.floor(top / ROW) - AROUND) : 0;
  const to = isVirtual ? Math.min(total, Math.ceil((top + height) / ROW) + AROUND) : total;
  const headings = new Set(lines.phases.map((phase) => phase.from));
  const marked = useMemo(() => new Set(found), [found]);
  const target = Number(/^#L(\d+)$/.exec(location.hash)?.[1] ?? 0) - 1;
  return (
    <div
      ref={view}
      class={`log-view ${isTall ? "tall" : ""}`}
      tabIndex={0}
      role="log"
      aria-label={note ?? text.log.search}
      aria-live="off"
      onScroll={(event) => {
        const box = event.currentTarget;
        onScroll(box.scrollTop, box.scrollTop + box.clientHeight >= box.scrollHeight - ROW);
      }}
    >
      {total === 0 && note && <p class="log-note">{note}</p>}
      <div class="log-space" style={{ height: isVirtual ? total * ROW : undefined }}>
        <div class="log-rows" style={{ transform: isVirtual ? `translateY(${from * ROW}px)` : undefined }}>
          {lines.items.slice(from, to).map((line, index) => {
            const at = from + index;
            const classes = ["log-line", headings.has(at) && "begins", line.isError && "bad", marked.has(at) && "found", at === current && "current", at === target && "target"];
            return <Row key={at} line={line} at={at} classes={classes.filter(Boolean).join(" ")} />;
          })}
        </div>
      </div>
    </div>
  );
}

function Row({ line, at, classes }: { line: Line; at: number; classes: string }) {
  const isLong = line.text.length > LONGEST;
  const shown = isLong ? line.text.slice(0, LONGEST) : line.text;
  return (
    <div class={classes} title={line.at} data-at={at}>
      <a class="number" href={`#L${at + 1}`} aria-label={text.log.line(at + 1)} onClick={(event) => mark(event, at)}>
        {at + 1}
      </a>
      <span dir="ltr">
        {parseAnsi(shown).map((piece, index) => (piece.classes ? <span key={index} class={piece.classes}>{piece.text}</span> : piece.text))}
        {isLong && <span class="soft"> {text.log.cut(bytes(line.text.length - LONGEST))}</span>}
      </span>
    </div>
  );
}

/** Put the line into the address without leaving the page. */
function mark(event: MouseEvent, at: number): void {
  event.preventDefault();
  history.replaceState(history.state, "", `${location.pathname}${location.search}#L${at + 1}`);
}

function download(lines: Lines, name: string): void {
  const url = URL.createObjectURL(new Blob([lines.toText(), "\n"], { type: "text/plain" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = `${name}.log`;
  link.click();
  URL.revokeObjectURL(url);
}
