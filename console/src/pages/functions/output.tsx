/** Output of a program, as text: the log view, as high as its lines. */

import { useMemo } from "preact/hooks";
import { Lines } from "../../ui/log/lines";
import { LogView } from "../../ui/log/view";

const MOST_ROWS = 16;

interface OutputProps {
  text: string;
  name: string; // of the file to download
  label: string;
  isError?: boolean | undefined;
}

export function Output({ text: given, name, label, isError }: OutputProps) {
  const lines = useMemo(() => {
    const made = new Lines();
    made.push(given.replace(/\n$/, ""), undefined, isError);
    return made;
  }, [given]);
  return (
    <div class={`output ${lines.items.length <= MOST_ROWS ? "short" : ""}`} style={{ "--rows": Math.min(MOST_ROWS, lines.items.length) }}>
      <p class="output-label">{label}</p>
      <LogView lines={lines} name={name} note={label} />
    </div>
  );
}
