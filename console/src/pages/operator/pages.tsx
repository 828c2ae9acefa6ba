/** Search box and page buttons of long lists. */

import { Search } from "lucide-preact";
import { useEffect, useState } from "preact/hooks";
import { text } from "../../text";
import { Button } from "../../ui/button";

const t = text.operator;

export function Pages({ page, total, size, onChange }: { page: number; total: number; size: number; onChange: (page: number) => void }) {
  const pages = Math.max(1, Math.ceil(total / size));
  if (pages === 1) return null;
  return (
    <div class="row between">
      <span class="soft small figures">{t.page(page, pages)}</span>
      <span class="row">
        <Button size="small" isDisabled={page <= 1} onClick={() => onChange(page - 1)}>
          {t.previous}
        </Button>
        <Button size="small" isDisabled={page >= pages} onClick={() => onChange(page + 1)}>
          {t.following}
        </Button>
      </span>
    </div>
  );
}

/** Tells the search after a pause in typing. */
export function SearchBox({ value, hint, onChange }: { value: string; hint: string; onChange: (value: string) => void }) {
  const [typed, setTyped] = useState(value);
  useEffect(() => {
    if (typed === value) return undefined;
    const timer = setTimeout(() => onChange(typed), 300);
    return () => clearTimeout(timer);
  }, [typed]);
  return (
    <div class="with-icon">
      <Search size={15} aria-hidden="true" />
      <input class="input" type="search" placeholder={hint} aria-label={`${t.search}: ${hint}`} value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />
    </div>
  );
}
