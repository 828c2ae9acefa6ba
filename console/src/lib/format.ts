/** Numbers, sizes and times as people read them. */

const RELATIVE: [limit: number, unit: string, seconds: number][] = [
  [60, "s", 1],
  [3_600, "min", 60],
  [86_400, "h", 3_600],
  [30 * 86_400, "d", 86_400],
  [365 * 86_400, "mo", 30 * 86_400],
  [Infinity, "y", 365 * 86_400],
];

/** Return "2 min ago", "in 3 h" or "now". */
export function relative(at: string | number | Date, now = Date.now()): string {
  const seconds = Math.round((now - new Date(at).getTime()) / 1_000);
  const size = Math.abs(seconds);
  if (size < 5) return "now";
  const [, unit, length] = RELATIVE.find(([limit]) => size < limit)!;
  const text = `${Math.floor(size / length)} ${unit}`;
  return seconds > 0 ? `${text} ago` : `in ${text}`;
}

const ABSOLUTE = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" }); // slow to make

export function absolute(at: string | number | Date): string {
  return ABSOLUTE.format(new Date(at));
}

/** Return a duration of a call: below 10 ms with a decimal. */
export function shortDuration(ms: number): string {
  if (ms > 0 && ms < 1) return `${Number(ms.toPrecision(2))} ms`;
  return ms < 10 && ms > 0 ? `${ms.toFixed(1)} ms` : duration(ms);
}

export function duration(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(1)} s`;
  const minutes = Math.floor(ms / 60_000);
  return minutes < 60 ? `${minutes} min ${Math.round((ms % 60_000) / 1_000)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function bytes(size: number): string {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let value = size;
  let index = 0;
  while (value >= 1_024 && index < units.length - 1) {
    value /= 1_024;
    index += 1;
  }
  return `${index === 0 ? value : value.toFixed(value < 10 ? 1 : 0)} ${units[index]}`;
}

export function count(value: number): string {
  return value.toLocaleString("en-US");
}

/** Return a short form for tiles and axes: 12.3 k, 4.5 M. */
export function compact(value: number): string {
  if (Math.abs(value) < 10_000) return Number.isInteger(value) ? count(value) : value.toFixed(value < 10 ? 2 : 1);
  return value < 1_000_000 ? `${(value / 1_000).toFixed(value < 100_000 ? 1 : 0)} k` : `${(value / 1_000_000).toFixed(1)} M`;
}

export function percent(value: number, digits = 1): string {
  return `${value.toFixed(value === 100 || value === 0 ? 0 : digits)} %`;
}

export function plural(number: number, one: string, many = `${one}s`): string {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** Return an address without its scheme, as people say it. */
export function hostOf(url: string): string {
  return url.replace(/^https?:\/\//, "").replace(/\/$/, "");
}

/** Return a text as a name that the API accepts: lower case, digits and hyphens. */
export function slugify(text: string): string {
  return text.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 63).replace(/-+$/, "");
}

/** Numbers of things by their plural, without those that are zero: "1 member, 3 functions". */
export function tally(numbers: Record<string, number>): string {
  const some = Object.entries(numbers).filter(([, number]) => number > 0);
  return some.map(([many, number]) => plural(number, many.replace(/s$/, ""), many)).join(", ");
}
