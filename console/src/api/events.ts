/** The format of server-sent events. */

export interface StreamEvent {
  name: string;
  data: string;
  id: string;
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
