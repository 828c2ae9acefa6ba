/** The lines of a log: kept as plain strings, so that 100,000 of them cost little. */

import { signal } from "@preact/signals";
import { plain } from "../../lib/ansi";

export interface Line {
  text: string; // as it came, with escape sequences
  at?: string | undefined;
  isError: boolean;
}

const ERROR = /\b(error|fatal|failed|failure|panic|exception|traceback|npm ERR!)\b/i;
const NO_ERROR = /\b(0|no|none|without) (errors?|failed|failures)\b/i;

export function isErrorLine(text: string): boolean {
  return ERROR.test(text) && !NO_ERROR.test(text);
}

/** Lines that grow while a stream runs; components read `version` to be drawn again, at most once a frame. */
export class Lines {
  readonly items: Line[] = [];
  readonly version = signal(0);
  private isPlanned = false;

  constructor(private readonly limit = 200_000) {}

  push(text: string, at?: string, isError?: boolean): void {
    for (const part of text.split("\n")) {
      this.items.push({ text: part, at, isError: isError ?? isErrorLine(part.length > 4_000 ? part.slice(0, 4_000) : part) });
    }
    if (this.items.length > this.limit) this.items.splice(0, this.items.length - this.limit);
    this.changed();
  }

  clear(): void {
    this.items.length = 0;
    this.changed();
  }

  toText(): string {
    return this.items.map((line) => plain(line.text)).join("\n");
  }

  private changed(): void {
    if (this.isPlanned) return;
    this.isPlanned = true;
    requestAnimationFrame(() => {
      this.isPlanned = false;
      this.version.value += 1;
    });
  }
}

/** Return the numbers of the lines that contain a text. */
export function search(items: Line[], wanted: string): number[] {
  const needle = wanted.toLowerCase();
  const found: number[] = [];
  if (!needle) return found;
  items.forEach((line, at) => {
    if (plain(line.text).toLowerCase().includes(needle)) found.push(at);
  });
  return found;
}
