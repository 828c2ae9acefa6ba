/** What a page shows around its data: cards, empty states, skeletons, errors. */

import { CircleAlert, CircleCheck, Info, RotateCw, TriangleAlert } from "lucide-preact";
import type { ComponentChildren } from "preact";
import type { ApiError } from "../api/errors";
import type { Resource } from "../api/resource";
import { text } from "../text";
import { Button } from "./button";
import { Copy } from "./copy";

interface CardProps {
  title?: ComponentChildren;
  actions?: ComponentChildren;
  children: ComponentChildren;
  foot?: ComponentChildren;
  isFlush?: boolean | undefined; // no space around the content, for tables and lists
  isDanger?: boolean | undefined;
}

export function Card({ title, actions, children, foot, isFlush, isDanger }: CardProps) {
  return (
    <section class={`card ${isDanger ? "danger" : ""}`}>
      {title && (
        <header class="card-head">
          <h2>{title}</h2>
          {actions}
        </header>
      )}
      <div class={`card-body ${isFlush ? "flush" : ""}`}>{children}</div>
      {foot && <footer class="card-foot">{foot}</footer>}
    </section>
  );
}

/** Names and values of a resource. */
export function Facts({ items }: { items: [name: string, value: ComponentChildren][] }) {
  return (
    <dl class="facts">
      {items.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

interface EmptyProps {
  icon?: ComponentChildren;
  children: ComponentChildren; // one sentence that says what the thing is for
  action?: ComponentChildren;
  snippet?: ComponentChildren; // a CodeBlock to paste
}

export function Empty({ icon, children, action, snippet }: EmptyProps) {
  return (
    <div class="empty">
      {icon && (
        <span class="mark" aria-hidden="true">
          {icon}
        </span>
      )}
      <p>{children}</p>
      {action}
      {snippet}
    </div>
  );
}

export function Skeleton({ width = "100%", height = 14 }: { width?: string | number; height?: number }) {
  return <div class="skeleton" style={{ width, height }} aria-hidden="true" />;
}

export function SkeletonRows({ rows = 5, height = 48 }: { rows?: number; height?: number }) {
  return (
    <div role="status" aria-label={text.common.loading}>
      {Array.from({ length: rows }, (_, row) => (
        <div key={row} class="row" style={{ height, padding: "0 20px", gap: 24 }}>
          <Skeleton width={`${26 - (row % 3) * 5}%`} />
          <Skeleton width="14%" />
          <Skeleton width="22%" />
        </div>
      ))}
    </div>
  );
}

interface NoticeProps {
  kind?: "info" | "ok" | "warn" | "bad" | undefined;
  children: ComponentChildren;
  actions?: ComponentChildren;
}

const ICONS = { info: Info, ok: CircleCheck, warn: TriangleAlert, bad: CircleAlert };

export function Notice({ kind = "info", children, actions }: NoticeProps) {
  const Icon = ICONS[kind];
  return (
    <div class={`notice ${kind}`} role={kind === "bad" ? "alert" : undefined}>
      <Icon size={16} aria-hidden="true" />
      <div class="grow">{children}</div>
      {actions}
    </div>
  );
}

interface ErrorBoxProps {
  error: ApiError;
  onRetry?: (() => void) | undefined;
  details?: string[] | undefined;
}

/** What failed, the trace id for those who search the log, and a way to try again. */
export function ErrorBox({ error, onRetry, details = [] }: ErrorBoxProps) {
  return (
    <Notice
      kind="bad"
      actions={
        onRetry && (
          <Button size="small" onClick={onRetry} icon={<RotateCw size={13} aria-hidden="true" />}>
            {text.common.retry}
          </Button>
        )
      }
    >
      <p>{error.message}</p>
      {details.map((line) => (
        <p key={line} class="small">
          {line}
        </p>
      ))}
      {error.traceId && (
        <p class="trace small">
          {text.common.trace} <Copy value={error.traceId} isMono />
        </p>
      )}
    </Notice>
  );
}

interface LoadedProps<T> {
  of: Resource<T>;
  children: (data: T) => ComponentChildren;
  skeleton?: ComponentChildren;
}

/** Shows a resource: a skeleton while it loads, an error with retry, or the data. */
export function Loaded<T>({ of, children, skeleton }: LoadedProps<T>) {
  if (of.data !== undefined) return <>{children(of.data)}</>;
  if (of.error) return <ErrorBox error={of.error} onRetry={() => void of.reload()} />;
  return <>{skeleton ?? <SkeletonRows rows={3} />}</>;
}
