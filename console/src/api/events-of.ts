/**
 * A write whose answer is a stream of server-sent events, for example a command that prints while it runs. Unlike
 * `follow` it is sent once: it is never repeated when the connection breaks.
 */

import { send, type Sent } from "./client";
import { EventParser, type StreamEvent } from "./events";
import type { Method } from "./types";

export async function eventsOf(method: Method, path: string, sent: Sent, onEvent: (event: StreamEvent) => void): Promise<void> {
  const response = await send(method, path, { ...sent, accept: "text/event-stream" });
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new EventParser();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    for (const event of parser.push(value)) onEvent(event);
  }
}
