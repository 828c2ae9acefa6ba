/** Differences between two texts, line by line (the algorithm of Myers). */

export interface DiffLine {
  kind: "same" | "added" | "removed";
  text: string;
  before: number | undefined; // line numbers, from 1
  after: number | undefined;
}

const MOST_EDITS = 1_500; // more than that, and the texts have little in common

export function diffLines(before: string, after: string): DiffLine[] {
  const [one, other] = [linesOf(before), linesOf(after)];
  let start = 0;
  while (start < one.length && start < other.length && one[start] === other[start]) start += 1;
  let end = 0;
  while (end < one.length - start && end < other.length - start && one[one.length - 1 - end] === other[other.length - 1 - end]) end += 1;
  const kinds: DiffLine["kind"][] = [
    ...Array.from({ length: start }, () => "same" as const),
    ...editsOf(one.slice(start, one.length - end), other.slice(start, other.length - end)),
    ...Array.from({ length: end }, () => "same" as const),
  ];
  let [left, right] = [0, 0];
  return kinds.map((kind) => {
    const isBefore = kind !== "added";
    const isAfter = kind !== "removed";
    const text = (isBefore ? one[left] : other[right])!;
    return { kind, text, before: isBefore ? (left += 1) : undefined, after: isAfter ? (right += 1) : undefined };
  });
}

function linesOf(text: string): string[] {
  if (text === "") return [];
  return (text.endsWith("\n") ? text.slice(0, -1) : text).split("\n");
}

/** The shortest way from one list of lines to the other. */
function editsOf(one: string[], other: string[]): DiffLine["kind"][] {
  const most = Math.min(one.length + other.length, MOST_EDITS);
  let reached = new Map<number, number>([[1, 0]]);
  const trace: Map<number, number>[] = [];
  for (let edits = 0; edits <= most; edits += 1) {
    trace.push(new Map(reached));
    const next = new Map(reached);
    for (let diagonal = -edits; diagonal <= edits; diagonal += 2) {
      let x = stepsDown(reached, diagonal, edits) ? (reached.get(diagonal + 1) ?? 0) : (reached.get(diagonal - 1) ?? 0) + 1;
      while (x < one.length && x - diagonal < other.length && one[x] === other[x - diagonal]) x += 1;
      next.set(diagonal, x);
      reached = next;
      if (x >= one.length && x - diagonal >= other.length) return walkBack(trace, one.length, other.length);
    }
  }
  return [...one.map(() => "removed" as const), ...other.map(() => "added" as const)];
}

function stepsDown(reached: Map<number, number>, diagonal: number, edits: number): boolean {
  return diagonal === -edits || (diagonal !== edits && (reached.get(diagonal - 1) ?? -1) < (reached.get(diagonal + 1) ?? -1));
}

function walkBack(trace: Map<number, number>[], width: number, height: number): DiffLine["kind"][] {
  const kinds: DiffLine["kind"][] = [];
  let [x, y] = [width, height];
  for (let edits = trace.length - 1; edits >= 0; edits -= 1) {
    const reached = trace[edits]!;
    const diagonal = x - y;
    const isDown = stepsDown(reached, diagonal, edits);
    const from = isDown ? diagonal + 1 : diagonal - 1;
    const fromX = edits === 0 ? 0 : (reached.get(from) ?? 0);
    const fromY = edits === 0 ? 0 : fromX - from;
    while (x > fromX && y > fromY) {
      kinds.push("same");
      [x, y] = [x - 1, y - 1];
    }
    if (edits > 0) kinds.push(isDown ? "added" : "removed");
    [x, y] = [fromX, fromY];
  }
  return kinds.reverse();
}

export interface Hunk {
  skipped: number; // unchanged lines before it
  lines: DiffLine[];
}

/** The changed lines with a few around them. */
export function hunksOf(lines: DiffLine[], around = 3): { hunks: Hunk[]; rest: number } {
  const near = new Set<number>();
  lines.forEach((line, at) => {
    if (line.kind !== "same") for (let each = at - around; each <= at + around; each += 1) near.add(each);
  });
  const hunks: Hunk[] = [];
  let skipped = 0;
  lines.forEach((line, at) => {
    if (!near.has(at)) {
      skipped += 1;
      return;
    }
    if (skipped > 0 || hunks.length === 0) hunks.push({ skipped, lines: [] });
    skipped = 0;
    hunks.at(-1)!.lines.push(line);
  });
  return { hunks, rest: skipped };
}
