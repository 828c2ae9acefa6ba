/**
 * Lists of resources: filter, sorting, keyboard (j, k, Enter), rows that are links, cards on phones, 50 rows at a time.
 *
 *   <Table
 *     rows={items} keyOf={(p) => p.id} hrefOf={(p) => `/projects/${p.name}`} label="Projects"
 *     columns={[{ name: "Name", of: (p) => p.name, sort: (p) => p.name }, …]}
 *     filter={(p) => `${p.name} ${p.projectUrl}`}
 *   />
 */

import { ArrowDown, ArrowUp, Search } from "lucide-preact";
import type { ComponentChildren } from "preact";
import { useLocation } from "preact-iso";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useShortcut } from "../lib/keyboard";
import { text } from "../text";

export interface Column<T> {
  name: string;
  of: (row: T) => ComponentChildren;
  sort?: ((row: T) => string | number | null | undefined) | undefined;
  isNumber?: boolean | undefined;
  isHiddenOnPhone?: boolean | undefined;
  width?: string | undefined;
}

interface TableProps<T> {
  rows: T[];
  columns: Column<T>[]; // the first one is the name, and the link of the row
  keyOf: (row: T) => string | number;
  label: string;
  hrefOf?: ((row: T) => string) | undefined;
  filter?: ((row: T) => string) | undefined; // the text that the filter searches; without it there is no filter box
  tools?: ComponentChildren; // beside the filter box
  onEnd?: (() => void) | undefined; // loads more rows, while there are more
  isLoadingMore?: boolean | undefined;
}

const PAGE = 50;
type Sorting = { column: number; isDown: boolean };

export function Table<T>(props: TableProps<T>) {
  const { rows, columns, keyOf, label, hrefOf, filter, tools, onEnd, isLoadingMore } = props;
  const [wanted, setWanted] = useState("");
  const [sorting, setSorting] = useState<Sorting>();
  const [shown, setShown] = useState(PAGE);
  const found = useMemo(() => sorted(filtered(rows, wanted, filter), columns, sorting), [rows, wanted, sorting]);
  const body = useRef<HTMLTableSectionElement>(null);
  const visible = found.slice(0, shown);
  const more = () => (shown < found.length ? setShown(shown + PAGE) : onEnd?.());
  useRowKeys(body);
  return (
    <div>
      {(filter || tools) && (
        <div class="list-tools">
          {filter && <FilterBox value={wanted} onChange={(value) => (setWanted(value), setShown(PAGE))} />}
          {tools}
        </div>
      )}
      <div class="table-card">
        <table class="table" aria-label={label}>
          <thead>
            <tr>
              {columns.map((column, at) => (
                <Heading key={column.name} column={column} at={at} sorting={sorting} onSort={setSorting} />
              ))}
            </tr>
          </thead>
          <tbody ref={body}>
            {visible.map((row) => (
              <tr key={keyOf(row)} class={hrefOf ? "linked" : ""}>
                {columns.map((column, at) => (
                  <td
                    key={column.name}
                    class={[at === 0 && "lead", column.isNumber && "num", column.isHiddenOnPhone && "not-phone"].filter(Boolean).join(" ")}
                    data-label={column.name}
                  >
                    {at === 0 && hrefOf ? (
                      <a class="row-link" href={hrefOf(row)}>
                        {column.of(row)}
                      </a>
                    ) : (
                      column.of(row)
                    )}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
        {wanted && found.length === 0 && <p class="table-end">{text.common.noMatch(wanted)}</p>}
        {(shown < found.length || onEnd) && <End onReach={more} isLoading={isLoadingMore} key={`${shown} ${found.length}`} />}
      </div>
    </div>
  );
}

function filtered<T>(rows: T[], wanted: string, filter: TableProps<T>["filter"]): T[] {
  const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
  if (!filter || words.length === 0) return rows;
  return rows.filter((row) => {
    const searched = filter(row).toLowerCase();
    return words.every((word) => searched.includes(word));
  });
}

function sorted<T>(rows: T[], columns: Column<T>[], sorting: Sorting | undefined): T[] {
  const by = sorting && columns[sorting.column]?.sort;
  if (!by) return rows;
  const sign = sorting.isDown ? -1 : 1;
  return [...rows].sort((one, other) => {
    const [a, b] = [by(one) ?? "", by(other) ?? ""];
    return sign * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true }));
  });
}

interface HeadingProps<T> {
  column: Column<T>;
  at: number;
  sorting: Sorting | undefined;
  onSort: (sorting: Sorting) => void;
}

function Heading<T>({ column, at, sorting, onSort }: HeadingProps<T>) {
  const isMine = sorting?.column === at;
  const Icon = isMine && sorting.isDown ? ArrowDown : ArrowUp;
  return (
    <th
      scope="col"
      class={[column.isNumber && "num", column.isHiddenOnPhone && "not-phone"].filter(Boolean).join(" ")}
      style={{ width: column.width }}
      aria-sort={isMine ? (sorting.isDown ? "descending" : "ascending") : undefined}
    >
      {column.sort ? (
        <button type="button" title={text.common.sortBy(column.name)} onClick={() => onSort({ column: at, isDown: isMine ? !sorting.isDown : false })}>
          {column.name}
          {isMine && <Icon size={12} aria-hidden="true" />}
        </button>
      ) : (
        column.name
      )}
    </th>
  );
}

function FilterBox({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  const input = useRef<HTMLInputElement>(null);
  useShortcut("/", text.help.filter, () => input.current?.focus());
  return (
    <div class="with-icon">
      <Search size={15} aria-hidden="true" />
      <input
        ref={input}
        class="input"
        type="search"
        placeholder={text.common.filter}
        aria-label={text.common.filter}
        value={value}
        onInput={(event) => onChange(event.currentTarget.value)}
        onKeyDown={(event) => event.key === "Escape" && (onChange(""), event.currentTarget.blur())}
      />
      {!value && <kbd aria-hidden="true">/</kbd>}
    </div>
  );
}

/** Loads more when it comes into view. */
function End({ onReach, isLoading = false }: { onReach: () => void; isLoading?: boolean | undefined }) {
  const element = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const watcher = new IntersectionObserver(([entry]) => entry?.isIntersecting && onReach(), { rootMargin: "300px" });
    watcher.observe(element.current!);
    return () => watcher.disconnect();
  }, []);
  return (
    <div ref={element} class="table-end">
      {isLoading && text.common.loadingMore}
    </div>
  );
}

/** j and k move between the links of rows; Enter opens the focused one, as any link. */
function useRowKeys(body: { current: HTMLElement | null }): void {
  const { path } = useLocation();
  const move = (step: number) => {
    const links = [...(body.current?.querySelectorAll<HTMLElement>(".row-link") ?? [])];
    const at = links.indexOf(document.activeElement as HTMLElement);
    const next = links[at < 0 ? (step > 0 ? 0 : links.length - 1) : Math.min(links.length - 1, Math.max(0, at + step))];
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  };
  const next = useMemo(() => () => move(1), [path]);
  const previous = useMemo(() => () => move(-1), [path]);
  useShortcut("j", text.help.next, next);
  useShortcut("k", text.help.previous, previous);
}
