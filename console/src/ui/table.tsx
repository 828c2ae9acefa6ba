/**
 * Lists of resources: filter, sorting, keyboard (j, k, Enter), rows that are links, cards on phones. Rows are
 * drawn a few at a time, and of long lists only those near the view exist.
 *
 *   <Table
 *     rows={items} keyOf={(p) => p.id} hrefOf={(p) => `/projects/${p.name}`} label="Projects"
 *     columns={[{ name: "Name", of: (p) => p.name, sort: (p) => p.name }, …]}
 *     filter={(p) => `${p.name} ${p.projectUrl}`}
 *   />
 */

import { ArrowDown, ArrowUp, Search } from "lucide-preact";
import { Component, type ComponentChildren } from "preact";
import { useLocation } from "preact-iso";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { useShortcut } from "../lib/keyboard";
import { text } from "../text";

export interface Column<T> {
  name: string;
  of: (row: T) => ComponentChildren;
  sort?: ((row: T) => string | number | null | undefined) | undefined;
  isNumber?: boolean | undefined;
  isHiddenOnPhone?: boolean | undefined;
  isWideOnly?: boolean | undefined; // hidden on tablets too
  width?: string | undefined;
}

interface TableProps<T> {
  rows: T[];
  columns: Column<T>[]; // the first one is the name, and the link of the row
  keyOf: (row: T) => string | number;
  label: string;
  hrefOf?: ((row: T) => string) | undefined;
  idOf?: ((row: T) => string) | undefined; // of the element, so that an address can point at a row
  filter?: ((row: T) => string) | undefined; // the text that the filter searches; without it there is no filter box
  tools?: ComponentChildren; // beside the filter box
  onEnd?: (() => void) | undefined; // loads more rows, while there are more
  isLoadingMore?: boolean | undefined;
}

const FIRST = 30;
const CHUNK = 10; // rows that are drawn or removed together: a few milliseconds of work
const NEAR = "800px"; // above and below the view
const TYPING_MS = 100; // The list changes when the person has stopped typing.
type Sorting = { column: number; isDown: boolean };

export function Table<T>(props: TableProps<T>) {
  const { rows, columns, keyOf, label, hrefOf, idOf, filter, tools, onEnd, isLoadingMore } = props;
  const [wanted, setWanted] = useState("");
  const [sorting, setSorting] = useState<Sorting>();
  const [shown, setShown] = useState(FIRST);
  const texts = useMemo(() => new Map<T, string>(), [rows]);
  const found = useMemo(() => sorted(filtered(rows, wanted, filter, texts), columns, sorting), [rows, wanted, sorting]);
  const table = useRef<HTMLTableElement>(null);
  const chunks = Array.from({ length: Math.ceil(Math.min(shown, found.length) / CHUNK) }, (_, at) => at * CHUNK);
  const isLong = found.length > FIRST;
  const widths = useFixedWidths(table, isLong);
  const more = () => (shown < found.length ? setShown(shown + CHUNK) : onEnd?.());
  const pointed = idOf && found.length > 0 ? decodeURIComponent(location.hash.slice(1)) : "";
  useEffect(() => {
    if (pointed) document.getElementById(pointed)?.scrollIntoView({ block: "center" });
  }, [pointed]);
  useRowKeys(table);
  return (
    <div>
      {(filter || tools) && (
        <div class="list-tools">
          {filter && <FilterBox onChange={(value) => (setWanted(value), setShown(FIRST))} />}
          {tools}
        </div>
      )}
      <div class="table-card">
        <table ref={table} class={`table ${widths ? "fixed" : ""}`} aria-label={label} aria-rowcount={isLong ? found.length + 1 : undefined}>
          <thead>
            <tr>
              {columns.map((column, at) => (
                <Heading key={column.name} column={column} width={widths?.[at]} at={at} sorting={sorting} onSort={(next) => (setSorting(next), setShown(FIRST))} />
              ))}
            </tr>
          </thead>
          {chunks.map((from) => (
            <Chunk key={from} isWindowed={isLong} span={columns.length}>
              {found.slice(from, Math.min(from + CHUNK, shown)).map((row, at) => (
                <Row
                  key={keyOf(row)}
                  row={row}
                  columns={columns}
                  href={hrefOf?.(row)}
                  id={idOf?.(row)}
                  isPointed={!!idOf && pointed === idOf(row)}
                  index={isLong ? from + at + 2 : undefined}
                />
              ))}
            </Chunk>
          ))}
        </table>
        {wanted && found.length === 0 && <p class="table-end">{text.common.noMatch(wanted)}</p>}
        {(shown < found.length || onEnd) && <End onReach={more} isLoading={isLoadingMore} key={`${shown} ${found.length}`} />}
      </div>
    </div>
  );
}

const waiting: (() => void)[] = [];

/** Do one piece of work in each task, so that the page answers in between. */
function inTurn(work: () => void): void {
  if (waiting.push(work) === 1) setTimeout(next);
}

function next(): void {
  waiting[0]!();
  waiting.shift();
  if (waiting.length > 0) setTimeout(next);
}

/** Rows that become empty space of the same height while they are far from the view. */
function Chunk({ isWindowed, span, children }: { isWindowed: boolean; span: number; children: ComponentChildren }) {
  const body = useRef<HTMLTableSectionElement>(null);
  const [space, setSpace] = useState(0); // 0: near the view
  useEffect(() => {
    if (!isWindowed) return undefined;
    const watcher = new IntersectionObserver(
      (entries) => {
        const isNear = entries[entries.length - 1]!.isIntersecting || body.current!.contains(document.activeElement);
        const height = isNear ? 0 : body.current!.offsetHeight;
        inTurn(() => setSpace(height));
      },
      { rootMargin: `${NEAR} 0px` },
    );
    watcher.observe(body.current!);
    return () => watcher.disconnect();
  }, [isWindowed]);
  return (
    <tbody ref={body}>
      {isWindowed && space ? (
        <tr aria-hidden="true" class="space" style={{ height: space }}>
          <td colSpan={span} />
        </tr>
      ) : (
        children
      )}
    </tbody>
  );
}

/** Return the widths of the columns when a list gets long: they stay as they are, whatever rows exist. */
function useFixedWidths(table: { current: HTMLTableElement | null }, isLong: boolean): string[] | undefined {
  const [widths, setWidths] = useState<string[]>();
  useLayoutEffect(() => {
    if (!isLong || widths || getComputedStyle(table.current!).display !== "table") return; // Phones show cards.
    const cells = [...table.current!.tHead!.rows[0]!.cells].map((cell) => cell.offsetWidth);
    const total = cells.reduce((sum, width) => sum + width, 0);
    setWidths(cells.map((width) => `${(width / total) * 100}%`));
  }, [isLong]);
  return isLong ? widths : undefined;
}

interface RowProps<T> {
  row: T;
  columns: Column<T>[];
  href: string | undefined;
  id: string | undefined;
  isPointed: boolean;
  index: number | undefined;
}

/** A row is drawn again only when its data, its columns or a signal in it change, so that long lists grow quickly. */
class Row<T> extends Component<RowProps<T>> {
  override shouldComponentUpdate(next: RowProps<T>, state: unknown): boolean {
    const { row, columns, href, index, isPointed } = this.props;
    const isSame = row === next.row && columns === next.columns && href === next.href && index === next.index;
    return !isSame || isPointed !== next.isPointed || state !== this.state;
  }

  override render({ row, columns, href, id, isPointed, index }: RowProps<T>) {
    return (
      <tr id={id} class={[href && "linked", isPointed && "pointed"].filter(Boolean).join(" ")} aria-rowindex={index}>
        {columns.map((column, at) => (
          <td
            key={column.name}
            class={[at === 0 && "lead", column.isNumber && "num", column.isHiddenOnPhone && "not-phone", column.isWideOnly && "only-wide"].filter(Boolean).join(" ")}
            data-label={column.name}
          >
            {at === 0 && href ? (
              <a class="row-link" href={href}>
                {column.of(row)}
              </a>
            ) : (
              column.of(row)
            )}
          </td>
        ))}
      </tr>
    );
  }
}

/** Return the rows with all wanted words; `texts` keeps what is searched of each row, in lower case. */
function filtered<T>(rows: T[], wanted: string, filter: TableProps<T>["filter"], texts: Map<T, string>): T[] {
  const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
  if (!filter || words.length === 0) return rows;
  return rows.filter((row) => {
    let searched = texts.get(row);
    if (searched === undefined) texts.set(row, (searched = filter(row).toLowerCase()));
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
  width: string | undefined;
  at: number;
  sorting: Sorting | undefined;
  onSort: (sorting: Sorting) => void;
}

function Heading<T>({ column, width, at, sorting, onSort }: HeadingProps<T>) {
  const isMine = sorting?.column === at;
  const Icon = isMine && sorting.isDown ? ArrowDown : ArrowUp;
  return (
    <th
      scope="col"
      class={[column.isNumber && "num", column.isHiddenOnPhone && "not-phone", column.isWideOnly && "only-wide"].filter(Boolean).join(" ")}
      style={{ width: width ?? column.width }}
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

function FilterBox({ onChange }: { onChange: (value: string) => void }) {
  const input = useRef<HTMLInputElement>(null);
  const [value, setValue] = useState("");
  const timer = useRef<ReturnType<typeof setTimeout>>();
  const change = (typed: string) => {
    setValue(typed);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => onChange(typed), typed ? TYPING_MS : 0);
  };
  useEffect(() => () => clearTimeout(timer.current), []);
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
        onInput={(event) => change(event.currentTarget.value)}
        onKeyDown={(event) => event.key === "Escape" && (change(""), event.currentTarget.blur())}
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
