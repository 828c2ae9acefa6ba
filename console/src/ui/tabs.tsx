/** Tabs of a page. Each tab is an address, so that the back button and links work. */

import { useLocation } from "preact-iso";
import { useEffect, useRef } from "preact/hooks";

export interface Tab {
  href: string;
  label: string;
}

export function Tabs({ tabs, label }: { tabs: Tab[]; label: string }) {
  const { path } = useLocation();
  const row = useRef<HTMLElement>(null);
  // The longest address that the path begins with: the overview is the beginning of all others.
  const current = tabs.filter(({ href }) => path === href || path.startsWith(`${href}/`)).sort((a, b) => b.href.length - a.href.length)[0];
  useEffect(() => {
    row.current?.querySelector('[aria-current="page"]')?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [path]);
  return (
    <nav class="tabs" aria-label={label} ref={row}>
      {tabs.map((tab) => (
        <a key={tab.href} class="tab" href={tab.href} aria-current={tab === current ? "page" : undefined}>
          {tab.label}
        </a>
      ))}
    </nav>
  );
}

interface SegmentsProps {
  label: string;
  value: string;
  options: { value: string; label: string }[];
  onChange: (value: string) => void;
}

/** A few values beside each other, for example ranges of charts. */
export function Segments({ label, value, options, onChange }: SegmentsProps) {
  return (
    <div class="segments" role="group" aria-label={label}>
      {options.map((option) => (
        <button key={option.value} type="button" aria-pressed={option.value === value} onClick={() => onChange(option.value)}>
          {option.label}
        </button>
      ))}
    </div>
  );
}
