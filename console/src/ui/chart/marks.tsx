/** Deployments, incidents and backups in a chart: vertical lines with a handle that leads to them. */

export interface Mark {
  at: number; // seconds
  label: string;
  href: string;
  look?: "bad" | "blue" | undefined; // an incident, a backup; a deployment without it
}

export interface PlacedMark extends Mark {
  left: number; // pixels in the box of the chart
}

/** Return the marks of the plot, from left to right. The last point begins a period: what happened in it stands at the edge. */
export function place(marks: Mark[], toPixels: (at: number) => number, left: number, width: number): PlacedMark[] {
  return marks
    .map((mark) => ({ ...mark, left: left + Math.min(width, toPixels(mark.at)) }))
    .filter((mark) => mark.left >= left)
    .sort((one, other) => one.left - other.left);
}

/** The links are no stops of the tab key: each chart would repeat them, and the page lists them too. */
export function Marks({ placed }: { placed: PlacedMark[] }) {
  return (
    <>
      {placed.map((mark) => (
        <a key={`${mark.at} ${mark.href}`} class={`chart-mark ${mark.look ?? ""}`} style={{ left: mark.left }} href={mark.href} title={mark.label} aria-label={mark.label} tabIndex={-1} />
      ))}
    </>
  );
}
