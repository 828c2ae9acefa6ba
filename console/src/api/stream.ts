/**
 * Server-sent events over `fetch`, because `EventSource` cannot send the Authorization header.
 *
 * A broken stream is opened again after a pause that grows, with `Last-Event-ID`, so that nothing is lost or shown twice.
 */

import { urlOf, headersOf, type Sent } from "./client";
import { ApiError, errorOf, toApiError } from "./errors";
import { EventParser, type StreamEvent } from "./events";
import { expire, hasExpired, session } from "./session";

export interface StreamHandlers {
  onEvent: (event: StreamEvent) => void | false; // false: the stream has ended, do not open it again
  onOpen?: (() => void) | undefined;
  onError?: ((error: ApiError, isFinal: boolean) => void) | undefined;
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
    do await pause(Math.max(parser.retryMs, Math.min(30_000, 500 * 2 ** failures)), abort.signal);
    while (hasExpired.peek() && !abort.signal.aborted);
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
