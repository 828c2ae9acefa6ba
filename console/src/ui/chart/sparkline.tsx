/** Small pictures of numbers: a line, bars of uptime, a meter. No library. */

import { useMemo } from "preact/hooks";

/** A line without axes. `null` is a gap. */
export function Sparkline({ values, label }: { values: (number | null)[]; label: string }) {
  const [line, area] = useMemo(() => pathsOf(values), [values]);
  return (
    <svg class="sparkline" viewBox="0 0 100 32" preserveAspectRatio="none" role="img" aria-label={label}>
      <path class="area" d={area} />
      <path d={line} />
    </svg>
  );
}

function pathsOf(values: (number | null)[]): [line: string, area: string] {
  const high = Math.max(1e-9, ...values.map((value) => value ?? 0));
  const x = (at: number) => ((at / Math.max(1, values.length - 1)) * 100).toFixed(2);
  const y = (value: number) => (30 - (value / high) * 28).toFixed(2);
  let line = "";
  let area = "";
  let start = -1;
  values.forEach((value, at) => {
    if (value === null) return;
    const isFirst = at === 0 || values[at - 1] === null;
    if (isFirst) start = at;
    line += `${isFirst ? "M" : "L"}${x(at)} ${y(value)}`;
    area += isFirst ? `M${x(at)} 32L${x(at)} ${y(value)}` : `L${x(at)} ${y(value)}`;
    if (at === values.length - 1 || values[at + 1] === null) area += `L${x(at)} 32L${x(start)} 32Z`;
  });
  return [line, area];
}

export interface Bar {
  look: "ok" | "bad" | "warn" | "none";
  title: string;
}

/** One bar for each hour of the last day, as on status pages. */
export function Bars({ bars, label }: { bars: Bar[]; label: string }) {
  return (
    <div class="bars" role="img" aria-label={label}>
      {bars.map((bar, at) => (
        <i key={at} class={bar.look} title={bar.title} />
      ))}
    </div>
  );
}

/** How much of a limit is used. */
export function Meter({ used, limit, label }: { used: number; limit: number; label: string }) {
  const part = limit > 0 ? Math.min(1, used / limit) : 1;
  const look = part >= 1 ? "bad" : part >= 0.8 ? "warn" : "";
  return (
    <div class="meter" role="meter" aria-label={label} aria-valuemin={0} aria-valuemax={limit} aria-valuenow={Math.min(used, limit)}>
      <i class={look} style={{ width: `${part * 100}%` }} />
    </div>
  );
}
