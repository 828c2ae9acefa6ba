/**
 * Data that pages read, shared between components and kept fresh.
 *
 *   const projects = useResource("/v1/projects", { query: { limit: 50 } }, { pollMs: 10_000 });
 *   projects.data        the newest answer; stays visible while the platform is away
 *   projects.isStale     the answer is older than it should be, because requests fail
 *   projects.error       only if there is no data at all, or the server refused
 *
 * Components with the same path, parameters and organization share one entry and one timer. Polling slows down while
 * requests fail, and pauses while the tab is hidden.
 */

import { signal, type Signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api, urlOf, type ReadArguments, type Sent } from "./client";
import { toApiError, type ApiError } from "./errors";
import { hasExpired, organizationId, session } from "./session";
import type { Data, PathOf } from "./types";

export interface Options {
  pollMs?: number | undefined; // 0: read once, and again when the tab is shown
  isOn?: boolean | undefined; // false: do not read, for example because an id is not known yet
}

export interface Resource<T> {
  data: T | undefined;
  error: ApiError | undefined;
  isLoading: boolean;
  isStale: boolean;
  at: number; // time of the data
  reload: () => Promise<void>;
  /** Show a value before the server confirms it. */
  set: (change: (data: T) => T) => void;
}

interface State {
  data: unknown;
  error: ApiError | undefined;
  at: number;
  isLoading: boolean;
}

const MAX_WAIT_MS = 60_000;
const KEPT_MS = 5 * 60_000;

class Entry {
  readonly state: Signal<State> = signal({ data: undefined, error: undefined, at: 0, isLoading: true });
  private users = new Map<symbol, number>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private running: Promise<void> | undefined;
  private failures = 0;

  constructor(
    readonly key: string,
    private readonly read: () => Promise<unknown>,
  ) {}

  /** Read the first time. Effects run after the next paint, which would be later. */
  begin(): void {
    if (this.state.peek().at === 0 && this.failures === 0 && !this.running) void this.load();
  }

  use(pollMs: number): () => void {
    const id = Symbol();
    this.users.set(id, pollMs);
    if (Date.now() - this.state.peek().at > Math.min(pollMs || 5_000, 5_000)) void this.load();
    else this.plan();
    return () => {
      this.users.delete(id);
      this.plan();
    };
  }

  load(): Promise<void> {
    clearTimeout(this.timer);
    this.running ??= this.loadNow().finally(() => {
      this.running = undefined;
      this.plan();
    });
    return this.running;
  }

  shown(): void {
    if (this.users.size > 0) void this.load();
  }

  /** Plan no more reads while the tab is hidden. */
  hidden(): void {
    this.plan();
  }

  private async loadNow(): Promise<void> {
    try {
      const data = await this.read();
      this.failures = 0;
      this.state.value = { data, error: undefined, at: Date.now(), isLoading: false };
    } catch (error) {
      this.failures += 1;
      const known = toApiError(error);
      const { data, at } = this.state.peek();
      // A refusal means that the data is not for this person any more.
      this.state.value = { data: known.isPassing ? data : undefined, error: known, at, isLoading: false };
    }
  }

  private plan(): void {
    clearTimeout(this.timer);
    if (this.users.size === 0) this.timer = setTimeout(() => entries.delete(this.key), KEPT_MS);
    if (this.users.size === 0 || document.hidden || hasExpired.peek()) return;
    const wanted = Math.min(...[...this.users.values()].map((ms) => ms || Infinity));
    const error = this.state.peek().error;
    if (error && !error.isPassing) return;
    const pause = error ? Math.max(2_000, Math.min(MAX_WAIT_MS, 1_000 * 2 ** this.failures)) : wanted;
    if (pause !== Infinity) this.timer = setTimeout(() => void this.load(), Math.max(pause, (error?.retryAfterS ?? 0) * 1_000));
  }
}

const entries = new Map<string, Entry>();
const OF_THE_PERSON = new Set(["/v1/me"]); // the same in every organization

function entryOf(path: string, sent: Sent | undefined): Entry {
  const key = `${OF_THE_PERSON.has(path) ? "" : organizationId.value} ${urlOf(path, sent?.path, sent?.query)}`;
  let entry = entries.get(key);
  if (!entry) {
    entry = new Entry(key, () => api.get(path as PathOf<"get">, sent as never));
    entries.set(key, entry);
  }
  return entry;
}

const NOTHING: State = { data: undefined, error: undefined, at: 0, isLoading: false };

export function useResource<P extends PathOf<"get">>(
  path: P,
  ...[sent, options = {}]: [...(ReadArguments<P> extends [unknown] ? [ReadArguments<P>[0]] : [ReadArguments<P>[0]?]), Options?]
): Resource<Data<P>> {
  const { pollMs = 0, isOn = true } = (options ?? {}) as Options;
  const entry = entryOf(path, sent as Sent | undefined);
  if (isOn) entry.begin();
  useEffect(() => (isOn ? entry.use(pollMs) : undefined), [entry, pollMs, isOn]);
  const state = isOn ? entry.state.value : NOTHING;
  return {
    data: state.data as Data<P> | undefined,
    error: state.data === undefined || !state.error?.isPassing ? state.error : undefined,
    isLoading: isOn && state.isLoading,
    isStale: state.error !== undefined && state.data !== undefined,
    at: state.at,
    reload: () => entry.load(),
    set: (change) => {
      const { data } = entry.state.peek();
      if (data !== undefined) entry.state.value = { ...entry.state.peek(), data: change(data as Data<P>) };
    },
  };
}

// Tabs of this browser tell each other what they have changed.
const tabs = new BroadcastChannel("moorage.changed");
tabs.onmessage = (event: MessageEvent<string[]>) => !document.hidden && refresh(...event.data);

/** Read what a write has changed again, as `refresh` does, here and in other tabs. */
export function changed(...prefixes: string[]): void {
  refresh(...prefixes);
  tabs.postMessage(prefixes);
}

/**
 * Read everything again whose path begins with one of these, after a write: "/v1/projects" is the list and all projects,
 * "/v1/projects?" the list only.
 */
export function refresh(...prefixes: string[]): void {
  for (const entry of entries.values()) {
    const path = entry.key.slice(entry.key.indexOf(" ") + 1);
    if (prefixes.length === 0 || prefixes.some((prefix) => path.startsWith(prefix))) entry.shown();
  }
}

addEventListener("online", () => refresh());
document.addEventListener("visibilitychange", () => {
  if (document.hidden) for (const entry of entries.values()) entry.hidden();
  else refresh();
});
let token = session.peek()?.token;
session.subscribe((value) => {
  if (value === null) entries.clear();
  else if (token && value.token !== token) refresh(); // signed in again
  token = value?.token;
});
