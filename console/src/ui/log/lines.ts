/** The lines of a log: kept as plain strings, so that 100,000 of them cost little. */

import { signal } from "@preact/signals";
import { plain } from "../../lib/ansi";
import { text } from "../../text";

export interface Line {
  text: string; // as it came, with escape sequences
  at?: string | undefined;
  isError: boolean;
}

export interface Phase {
  title: string;
  from: number; // its first line
  at: string | undefined;
}

/** Lines of the platform that begin a phase of a build. */
const PHASES: [begin: RegExp, title: (match: RegExpExecArray) => string][] = [
  [/^Fetching /, () => text.log.phaseNames.source],
  [/^detected: /, () => text.log.phaseNames.plan],
  [/^\$ (.{1,60})/, (match) => match[1]!],
  [/^(collected|Publishing) /, () => text.log.phaseNames.publish],
  [/^Starting /, () => text.log.phaseNames.start],
];

function phaseOf(line: string): string | undefined {
  for (const [begin, title] of PHASES) {
    const match = begin.exec(line);
    if (match) return title(match);
  }
  return undefined;
}

const ERROR = /\b(error|fatal|failed|failure|panic|exception|traceback|npm ERR!)\b/i;
const NO_ERROR = /\b(0|no|none|without) (errors?|failed|failures)\b/i;

export function isErrorLine(text: string): boolean {
  return ERROR.test(text) && !NO_ERROR.test(text);
}

/** Lines that grow while a stream runs; components read `version` to be drawn again, at most once a frame. */
export class Lines {
  readonly items: Line[] = [];
  readonly phases: Phase[] = []; // of a build; other logs have none
  readonly version = signal(0);
  private isPlanned = false;

  constructor(private readonly limit = 200_000) {}

  push(text: string, at?: string, isError?: boolean): void {
    for (const part of text.split("\n")) {
      this.items.push({ text: part, at, isError: isError ?? isErrorLine(part.length > 4_000 ? part.slice(0, 4_000) : part) });
    }
    if (this.items.length > this.limit) this.drop(this.items.length - this.limit);
    this.changed();
  }

  /** Add a line of the platform, which may begin a phase. */
  pushSystem(line: string, at?: string): void {
    const title = phaseOf(line);
    if (title && this.phases[this.phases.length - 1]?.title !== title) this.phases.push({ title, from: this.items.length, at });
    this.push(line, at);
  }

  private drop(count: number): void {
    this.items.splice(0, count);
    for (const phase of this.phases) phase.from = Math.max(0, phase.from - count);
  }

  clear(): void {
    this.items.length = 0;
    this.phases.length = 0;
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
