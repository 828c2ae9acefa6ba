/** The state of a resource: a symbol and a word, never a colour alone. */

import { text } from "../text";

type Look = "ok" | "busy" | "off" | "warn" | "bad";

/** Look and word of every state that the API has. */
const STATES: Record<string, [look: Look, word: string]> = {
  running: ["ok", text.status.running],
  live: ["ok", text.status.live],
  ready: ["ok", text.status.ready],
  active: ["ok", text.status.ready],
  succeeded: ["ok", text.status.succeeded],
  success: ["ok", text.status.succeeded],
  completed: ["ok", text.status.completed],
  verified: ["ok", text.status.verified],
  issued: ["ok", text.status.issued],
  up: ["ok", text.status.up],
  queued: ["busy", text.status.queued],
  pending: ["busy", text.status.pending],
  deploying: ["busy", text.status.deploying],
  building: ["busy", text.status.building],
  in_progress: ["busy", text.status.deploying],
  updating: ["busy", text.status.updating],
  deleting: ["busy", text.status.deleting],
  attention: ["warn", text.status.attention],
  triggered: ["warn", text.status.attention],
  stopped: ["off", text.status.stopped],
  paused: ["off", text.status.paused],
  pause: ["off", text.status.paused],
  disabled: ["off", text.status.disabled],
  superseded: ["off", text.status.superseded],
  canceled: ["off", text.status.canceled],
  never: ["off", text.status.neverDeployed],
  failed: ["bad", text.status.failed],
  down: ["bad", text.status.down],
};

const SHAPES = {
  ok: <circle cx="6" cy="6" r="4.5" fill="currentColor" />,
  busy: (
    <>
      <circle cx="6" cy="6" r="4.5" fill="none" stroke="currentColor" stroke-width="1.6" />
      <path d="M6 1.500a4.500 4.500 0 0 1 0 9z" fill="currentColor" />
    </>
  ),
  off: <circle cx="6" cy="6" r="4" fill="none" stroke="currentColor" stroke-width="1.6" />,
  warn: <path d="M6 1 11.200 10.500H.800z" fill="currentColor" />,
  bad: <path d="m2.500 2.500 7 7m0-7-7 7" stroke="currentColor" stroke-width="2.200" stroke-linecap="round" />,
};

export function lookOf(state: string | null | undefined): Look {
  return STATES[(state ?? "").toLowerCase()]?.[0] ?? "off";
}

export function Status({ of: state, word }: { of: string | null | undefined; word?: string | undefined }) {
  const [look, known] = STATES[(state ?? "").toLowerCase()] ?? (["off", state || text.status.unknown] as const);
  return (
    <span class={`status ${look}`}>
      <svg width="12" height="12" viewBox="0 0 12 12" aria-hidden="true">
        {SHAPES[look as Look]}
      </svg>
      {word ?? known}
    </span>
  );
}
