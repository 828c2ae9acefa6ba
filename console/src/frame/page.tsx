/** The head of a page: crumbs in the top bar, title, count, status and actions. */

import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { count as formatCount } from "../lib/format";
import { text } from "../text";

export interface Crumb {
  label: string;
  href?: string | undefined;
}

/** The crumbs of the page that is open; the top bar shows them. */
export const crumbs = signal<Crumb[]>([]);

interface PageHeadProps {
  title: string;
  crumbs?: Crumb[] | undefined; // the pages above this one
  count?: number | undefined;
  status?: ComponentChildren;
  subtitle?: ComponentChildren;
  actions?: ComponentChildren;
}

export function PageHead({ title, crumbs: above = [], count, status, subtitle, actions }: PageHeadProps) {
  useEffect(() => {
    crumbs.value = [...above, { label: title }];
    document.title = `${[title, ...above.map(({ label }) => label).reverse()].join(" · ")} · ${text.frame.product}`;
  }, [title, above.map(({ label }) => label).join("/")]);
  return (
    <header class="page-head">
      <div class="titles">
        <div class="title-row">
          <h1>
            {title} {count !== undefined && <span class="count">{formatCount(count)}</span>}
          </h1>
          {status}
        </div>
        {subtitle}
      </div>
      {actions && <div class="row wrap">{actions}</div>}
    </header>
  );
}
