/** A time as people say it, with the exact one on hover. All times of a page move on together. */

import { signal } from "@preact/signals";
import { absolute, relative } from "../lib/format";
import { text } from "../text";

const now = signal(Date.now());
setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 10_000);

export function Time({ at }: { at: string | number | null | undefined }) {
  if (at === null || at === undefined) return <span class="soft">{text.common.never}</span>;
  const date = new Date(at);
  return (
    <time class="figures" dateTime={date.toISOString()} title={absolute(date)}>
      {relative(date, Math.max(now.value, Date.now()))}
    </time>
  );
}
