/** A time as people say it, with the exact one on hover. All times of a page move on together. */

import { signal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { absolute, relative } from "../lib/format";
import { text } from "../text";

const now = signal(Date.now());
setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 10_000);

export function Time({ at }: { at: string | number | null | undefined }) {
  return at === null || at === undefined ? <span class="soft">{text.common.never}</span> : <Moment at={at} />;
}

function Moment({ at }: { at: string | number }) {
  const [date, iso, title] = useMemo(() => [new Date(at), new Date(at).toISOString(), absolute(at)], [at]);
  return (
    <time class="figures" dateTime={iso} title={title}>
      {relative(date, Math.max(now.value, Date.now()))}
    </time>
  );
}
