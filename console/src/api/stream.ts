/**
 * Server-sent events over `fetch`, because `EventSource` cannot send the Authorization header.
 *
 * A broken stream is opened again after a pause that grows, with `Last-Event-ID`, so that nothing is lost or shown twice.
 */

import { urlOf, headersOf, type Sent } from "./client";
import { ApiError, errorOf, toApiError } from "./errors";
import { expire, session } from "./session";

export interface StreamEvent {
  name: string;
  data: string;
  id: string;
}

export interface StreamHandlers {
  onEvent: (event: StreamEvent) => void | false; // false: the stream has ended, do not open it again
  onOpen?: (() => void) | undefined;
  onError?: ((error: ApiError, isFinal: boolean) => void) | undefined;
}

/** Reads the lines of `text/event-stream`; a chunk may end anywhere. */
export class EventParser {
  private rest = "";
  private lines: string[] = [];
  lastId = "";
  retryMs = 0;

  push(chunk: string): StreamEvent[] {
    this.rest += chunk;
    const events: StreamEvent[] = [];
    for (;;) {
      const match = /\r\n|\n|\r(?=[^])/.exec(this.rest);
      if (!match) return events;
      const line = this.rest.slice(0, match.index);
      this.rest = this.rest.slice(match.index + match[0].length);
      if (line !== "") this.lines.push(line);
      else if (this.lines.length > 0) this.end(events);
    }
  }

  private end(events: StreamEvent[]): void {
    let name = "message";
    const data: string[] = [];
    for (const line of this.lines) {
      const colon = line.indexOf(":");
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "event") name = value;
      else if (field === "data") data.push(value);
      else if (field === "id") this.lastId = value;
      else if (field === "retry" && /^\d+$/.test(value)) this.retryMs = Number(value);
    }
    this.lines = [];
    if (data.length > 0) events.push({ name, data: data.join("\n"), id: this.lastId });
  }
}

/** Follow a stream until the returned function is called, or a handler returns false. */
export function follow(path: string, sent: Sent, handlers: StreamHandlers): () => void {
  const abort = new AbortController();
  void keepFollowing(path, sent, handlers, abort);
  return () => abort.abort();
}

async function keepFollowing(path: string, sent: Sent, handlers: StreamHandlers, abort: AbortController): Promise<void> {
  const parser = new EventParser();
  for (let failures = 0; !abort.signal.aborted; failures += 1) {
    try {
      const isOver = await followOnce(path, sent, handlers, parser, abort.signal, () => (failures = 0));
      if (isOver) return;
    } catch (error) {
      if (abort.signal.aborted) return;
      const known = toApiError(error);
      handlers.onError?.(known, !known.isPassing);
      if (!known.isPassing) return;
    }
    await pause(Math.max(parser.retryMs, Math.min(30_000, 500 * 2 ** failures)), abort.signal);
  }
}

async function followOnce(
  path: string,
  sent: Sent,
  handlers: StreamHandlers,
  parser: EventParser,
  signal: AbortSignal,
  onOpen: () => void,
): Promise<boolean> {
  const headers = headersOf("get", { ...sent, accept: "text/event-stream" });
  if (parser.lastId) headers.set("Last-Event-ID", parser.lastId);
  const token = session.peek()?.token ?? "";
  const response = await fetch(urlOf(path, sent.path, sent.query), { headers, signal, credentials: "omit", cache: "no-store" });
  if (!response.ok || !response.body) {
    if (response.status === 401) expire(token);
    throw await errorOf(response);
  }
  onOpen();
  handlers.onOpen?.();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return false;
    for (const event of parser.push(value)) {
      if (handlers.onEvent(event) === false) {
        await reader.cancel();
        return true;
      }
    }
  }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
