/**
 * Charts over time. uPlot is loaded when the first chart is shown. Charts with the same `group` share one cursor.
 * Missing samples are gaps, and a table with the values is there for screen readers.
 */

import { useEffect, useRef, useState } from "preact/hooks";
import type uPlot from "uplot";
import { absolute, compact } from "../../lib/format";
import { isDark } from "../../lib/theme";
import { text } from "../../text";
import { Segments } from "../tabs";
import { Marks, place, type Mark, type PlacedMark } from "./marks";

export type { Mark } from "./marks";

export interface Series {
  label: string;
  values: (number | null)[];
  color?: "accent" | "blue" | "amber" | "bad" | undefined;
}

interface ChartProps {
  title: string;
  times: number[]; // seconds since 1970
  series: Series[];
  unit?: string | undefined;
  format?: ((value: number) => string) | undefined;
  group?: string | undefined;
  height?: number | undefined;
  marks?: Mark[] | undefined; // deployments, incidents, backups: a click leads there
  max?: number | undefined; // of the axis, for example 100 for percent
  isWhole?: boolean | undefined; // counts, whose axis has no fractions
}

const COLORS = { accent: "--teal-9", blue: "--blue-9", amber: "--amber-9", bad: "--tomato-9" };
const ORDER = ["accent", "blue", "amber", "bad"] as const;

export function Chart(props: ChartProps) {
  const { title, series, format = compact, unit = "" } = props;
  const box = useRef<HTMLDivElement>(null);
  const [at, setAt] = useState<number | null>(null);
  const [placed, setPlaced] = useState<PlacedMark[]>([]);
  const isEmpty = !series.some(({ values }) => values.some((value) => value !== null));
  const dark = isDark.value;
  usePlot(box, props, { onCursor: setAt, onPlaced: setPlaced }, `${dark}`, isEmpty);
  return (
    <figure class="chart">
      <figcaption class="chart-head">
        <h3>{title}</h3>
        <span class="value">
          {series.map(({ label, values, color }, order) => {
            const value = at === null ? latest(values) : values[at];
            return (
              <span key={label} style={{ marginLeft: 12 }}>
                {series.length > 1 && <i class="legend-dot" style={{ background: `var(${COLORS[color ?? ORDER[order % ORDER.length]!]})` }} />}
                {series.length > 1 && `${label} `}
                {value === null || value === undefined ? "–" : `${format(value)}${unit && ` ${unit}`}`}
              </span>
            );
          })}
        </span>
      </figcaption>
      {isEmpty ? (
        <p class="soft small chart-box">{text.chart.noData}</p>
      ) : (
        <div class="chart-frame">
          <div class="chart-box" ref={box} style={{ minHeight: props.height ?? HEIGHT }} aria-hidden="true" />
          <Marks placed={placed} />
        </div>
      )}
      <ValueTable {...props} />
    </figure>
  );
}

interface Listeners {
  onCursor: (at: number | null) => void;
  onPlaced: (marks: PlacedMark[]) => void;
}

function usePlot(box: { current: HTMLDivElement | null }, props: ChartProps, listeners: Listeners, theme: string, isEmpty: boolean) {
  const plot = useRef<uPlot | undefined>(undefined);
  const data = [props.times, ...props.series.map(({ values }) => values)] as uPlot.AlignedData;
  useEffect(() => {
    if (isEmpty) return undefined;
    let isGone = false;
    let watcher: ResizeObserver | undefined;
    void import("uplot").then(({ default: UPlot }) => {
      if (isGone || !box.current) return;
      const width = box.current.clientWidth;
      plot.current = new UPlot(optionsOf(props, width, listeners), data, box.current);
      watcher = new ResizeObserver(([entry]) => plot.current?.setSize({ width: entry!.contentRect.width, height: props.height ?? HEIGHT }));
      watcher.observe(box.current);
    });
    return () => {
      isGone = true;
      watcher?.disconnect();
      plot.current?.destroy();
      plot.current = undefined;
    };
  }, [theme, isEmpty, props.series.length, (props.marks ?? []).map(({ at }) => at).join()]);
  useEffect(() => plot.current?.setData(data), [props.times, props.series]);
}

function cssColor(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

const HEIGHT = 180;
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 1_000];
const ALONE_S = 300; // on both sides of a single sample

function optionsOf(props: ChartProps, width: number, { onCursor, onPlaced }: Listeners): uPlot.Options {
  const { series, format = compact, group, height = HEIGHT, marks = [], max, isWhole = false } = props;
  const axis = { stroke: cssColor("--soft"), grid: { stroke: cssColor("--line"), width: 1 }, ticks: { show: false }, font: "11px Inter Variable" };
  return {
    width,
    height,
    legend: { show: false },
    padding: [8, 18, 0, 0], // half a label of the last tick
    cursor: { ...(group ? { sync: { key: group } } : {}), points: { size: 7 }, y: false, drag: { x: false, y: false } },
    scales: { x: { range: (_, low, high) => (high > low ? [low, high] : [low - ALONE_S, high + ALONE_S]) }, y: { range: (_, __, high) => [0, max ?? (high > 0 ? high * 1.1 : 1)] } },
    axes: [
      { ...axis, size: 24, space: 72, values: (_, splits, __, ___, step) => splits.map((at) => timeLabel(at, step)) },
      { ...axis, size: 46, ...(isWhole && { incrs: WHOLE }), values: (plot, splits) => splits.map((value) => (value > 0 && isFlat(plot) ? "" : format(value))) },
    ],
    series: [
      {},
      ...series.map(({ label, color }, at) => {
        const stroke = cssColor(COLORS[color ?? ORDER[at % ORDER.length]!]);
        return { label, stroke, width: 1.75, fill: series.length === 1 ? `color-mix(in srgb, ${stroke} 12%, transparent)` : "", spanGaps: false, points: { show: true, size: 4, fill: stroke, filter: lonely } };
      }),
    ],
    hooks: {
      setCursor: [(plot) => onCursor(plot.cursor.idx ?? null)],
      draw: [(plot) => marks.length > 0 && onPlaced(place(marks, (at) => plot.valToPos(at, "x"), plot.over.offsetLeft, plot.over.offsetWidth))],
    },
  };
}

const LATE = 5; // samples that may be missing at the end: the newest ones arrive later

function latest(values: (number | null)[]): number | null | undefined {
  return values.slice(-LATE).findLast((value) => value !== null);
}

/** Whether all values are zero: then the scale means nothing. */
function isFlat(plot: uPlot): boolean {
  return plot.data.slice(1).every((values) => Array.from(values).every((value) => !value));
}

const HOUR = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const SECOND = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const DAY = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });

/** The day at midnight and on wide steps, else the time. */
function timeLabel(at: number, stepS: number): string {
  const date = new Date(at * 1_000);
  if (stepS < 60) return SECOND.format(date);
  return stepS >= 86_400 || (date.getHours() === 0 && date.getMinutes() === 0) ? DAY.format(date) : HOUR.format(date);
}

/** Samples without a neighbour: no line reaches them, so they are points. */
function lonely(plot: uPlot, series: number): number[] {
  const values = plot.data[series]!;
  return [...values.keys()].filter((at) => values[at] != null && values[at - 1] == null && values[at + 1] == null);
}

function ValueTable({ title, times, series, format = compact }: ChartProps) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details class="unseen" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        {text.chart.table}: {title}
      </summary>
      {isOpen && (
        <table>
          <thead>
            <tr>
              <th scope="col">{text.chart.time}</th>
              {series.map(({ label }) => (
                <th key={label} scope="col">
                  {label}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {times.map((time, at) => (
              <tr key={time}>
                <th scope="row">{absolute(time * 1_000)}</th>
                {series.map(({ label, values }) => (
                  <td key={label}>{values[at] === null || values[at] === undefined ? "–" : format(values[at])}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </details>
  );
}

export function Ranges<R extends string>({ value, ranges, onChange }: { value: R; ranges: readonly R[]; onChange: (range: R) => void }) {
  return <Segments label={text.chart.ranges} value={value} options={ranges.map((range) => ({ value: range, label: range }))} onChange={(range) => onChange(range as R)} />;
}
