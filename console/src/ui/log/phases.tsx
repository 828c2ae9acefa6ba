/** Phases of a build log: buttons that jump to them, and the heading of the one in view. */

import { shortDuration } from "../../lib/format";
import { text } from "../../text";
import type { Lines, Phase } from "./lines";

/** Return how long a phase took: until the next one began, or until the last line. */
function durationOf(lines: Lines, order: number): string {
  const { phases, items } = lines;
  const began = Date.parse(phases[order]!.at ?? "");
  const ended = Date.parse(phases[order + 1]?.at ?? items[items.length - 1]?.at ?? "");
  return Number.isNaN(ended - began) ? "" : shortDuration(ended - began);
}

/** Return the phase that a line belongs to; the first one for lines before it. */
export function phaseAt(phases: Phase[], line: number): number {
  let found = 0;
  for (const [order, phase] of phases.entries()) if (phase.from <= line) found = order;
  return found;
}

export function PhaseBar({ lines, current, onShow }: { lines: Lines; current: number; onShow: (line: number) => void }) {
  return (
    <ol class="log-phases" aria-label={text.log.phases}>
      {lines.phases.map((phase, order) => (
        <li key={phase.from}>
          <button type="button" aria-current={order === current ? "step" : undefined} onClick={() => onShow(phase.from)}>
            <span class="cut">{phase.title}</span>
            <span class="soft figures">{durationOf(lines, order)}</span>
          </button>
        </li>
      ))}
    </ol>
  );
}

export function PhaseHeading({ lines, order }: { lines: Lines; order: number }) {
  return (
    <div class="log-heading" aria-hidden="true">
      <span class="cut">{lines.phases[order]!.title}</span>
      <span class="soft figures">{durationOf(lines, order)}</span>
    </div>
  );
}
