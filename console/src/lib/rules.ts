/**
 * What redirects and header rules do to a path, as the gateway does it:
 *
 *   /about        this path only            /docs/*   the rest of the path, or empty
 *   /blog/:slug   one part, not empty       /*.css    with an ending
 *
 * Paths are compared decoded. The first matching redirect applies. The API has the last word when rules are saved.
 */

export interface Redirect {
  source: string;
  destination: string;
  status: number;
}

export interface HeaderRule {
  source: string;
  name: string;
  value: string;
}

interface Wild {
  name: string;
  value: string;
}

const ENDING = /^(?:\.[A-Za-z0-9_-]+){0,3}$/;
const NAMED = /^:([A-Za-z_][A-Za-z0-9_]*)((?:\.[A-Za-z0-9_-]+){0,3})$/;

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Return the values of the wildcards of a source in a path (still escaped), or undefined if it does not match. */
export function match(source: string, path: string): Wild[] | undefined {
  if (!source.startsWith("/")) return undefined;
  const wanted = source.slice(1).split("/");
  const given = path.slice(1).split("/");
  const last = wanted.length - 1;
  const isOpen = wanted[last]!.includes("*");
  if (given.length < wanted.length || (given.length > wanted.length && !isOpen)) return undefined;
  const parts = isOpen ? [...given.slice(0, last), given.slice(last).join("/")] : given;
  const values: Wild[] = [];
  for (const [at, part] of wanted.entries()) {
    const found = matchPart(part, parts[at]!, at === last);
    if (found === undefined) return undefined;
    if (found) values.push(found);
  }
  return values;
}

/** Return a wildcard's value, null for a text that is equal, undefined for no match. */
function matchPart(part: string, text: string, isLast: boolean): Wild | null | undefined {
  const named = NAMED.exec(part);
  const star = part.indexOf("*");
  if (!named && star < 0) return decoded(part) === decoded(text) ? null : undefined;
  const before = named ? "" : decoded(part.slice(0, star));
  const after = named ? named[2]! : part.slice(star + 1);
  if (!ENDING.test(after)) return undefined;
  const isRest = !named && isLast;
  const given = isRest && !before ? text.replace(/^\/+/, "") : text;
  const least = before.length + after.length + (isRest ? 0 : 1);
  const plain = decoded(given);
  if (plain.length < least || !plain.startsWith(before) || !plain.endsWith(after)) return undefined;
  const value = given.startsWith(before) ? given.slice(before.length) : encodeURI(plain.slice(before.length));
  return { name: named ? named[1]! : "*", value: after ? value.slice(0, value.length - after.length) : value };
}

/** Put the values of wildcards into a destination: `*` in its order, `:splat` the last `*`, `:name` by name. */
function filled(destination: string, values: Wild[]): string {
  const stars = values.filter(({ name }) => name === "*").map(({ value }) => value);
  let at = 0;
  return destination.replace(/\*|(?<![A-Za-z0-9_]):([A-Za-z_][A-Za-z0-9_]*)/g, (found, name: string | undefined) => {
    if (name === undefined) return stars[Math.min(at++, stars.length - 1)] ?? found;
    if (name === "splat" && stars.length > 0) return stars[stars.length - 1]!;
    return values.find((each) => each.name === name)?.value ?? found;
  });
}

export interface Step {
  rule: number; // from 0
  status: number;
  to: string;
}

export interface Outcome {
  steps: Step[];
  end: "served" | "elsewhere" | "loop";
  path: string; // that is served, without its query
  headers: [name: string, value: string][];
}

function split(path: string): [path: string, query: string] {
  const bare = path.replace(/#.*$/, "");
  const mark = bare.indexOf("?");
  return mark < 0 ? [bare, ""] : [bare.slice(0, mark), bare.slice(mark)];
}

/** Return the redirect that a path meets first. */
export function redirectOf(given: string, redirects: Redirect[]): Step | undefined {
  const [path, query] = split(given);
  for (const [rule, redirect] of redirects.entries()) {
    const values = match(redirect.source, path);
    if (!values || !redirect.destination) continue;
    const to = filled(redirect.destination, values);
    const [beforeFragment, fragment] = to.split(/(?=#)/, 2) as [string, string?];
    const keepsQuery = query && !beforeFragment.includes("?");
    return { rule, status: redirect.status, to: `${beforeFragment}${keepsQuery ? query : ""}${fragment ?? ""}` };
  }
  return undefined;
}

/** Follow a path through the rules, and say which headers its answer gets. */
export function evaluate(given: string, redirects: Redirect[], headers: HeaderRule[], origin = ""): Outcome {
  const steps: Step[] = [];
  const seen = new Set<string>();
  let path = given;
  for (;;) {
    const step = redirectOf(path, redirects);
    if (!step) return { steps, end: "served", path: split(path)[0], headers: headersOf(split(path)[0], headers) };
    steps.push(step);
    const next = origin && step.to.startsWith(`${origin}/`) ? step.to.slice(origin.length) : step.to;
    if (!next.startsWith("/")) return { steps, end: "elsewhere", path: next, headers: [] };
    if (seen.has(next) || steps.length > 20) return { steps, end: "loop", path: next, headers: [] };
    seen.add(next);
    path = next;
  }
}

function headersOf(path: string, rules: HeaderRule[]): [string, string][] {
  const found = new Map<string, [string, string]>();
  for (const { source, name, value } of rules) {
    if (name && match(source, path) && !found.has(name.toLowerCase())) found.set(name.toLowerCase(), [name, value]);
  }
  return [...found.values()];
}
