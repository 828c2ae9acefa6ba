/** Rows of names and values. Lines of a .env file that are pasted into a name become rows. */

import { Plus, X } from "lucide-preact";
import { text } from "../../text";
import { Button } from "../../ui/button";

export interface Variable {
  name: string;
  value: string;
}

const t = text.variables;

/** Read lines such as `NAME=value`, with `export`, quotes and comments as they are usual there. */
export function parseDotEnv(pasted: string): Variable[] {
  const found: Variable[] = [];
  for (const line of pasted.split(/\r?\n/)) {
    const match = /^\s*(?:export\s+)?([A-Za-z_][\w.-]*)\s*=\s*(.*?)\s*$/.exec(line);
    if (!match) continue;
    const raw = match[2]!;
    const quoted = /^(["'`])(.*)\1$/.exec(raw);
    const value = quoted ? (quoted[1] === '"' ? quoted[2]!.replaceAll("\\n", "\n").replaceAll('\\"', '"') : quoted[2]!) : raw.replace(/\s+#.*$/, "");
    found.push({ name: match[1]!, value });
  }
  return found;
}

interface VariablesProps {
  rows: Variable[];
  onChange: (rows: Variable[]) => void;
  isSecret?: boolean | undefined;
  why?: string | undefined; // why it cannot be changed
}

export function Variables({ rows, onChange, isSecret = false, why }: VariablesProps) {
  const set = (at: number, change: Partial<Variable>) => onChange(rows.map((row, index) => (index === at ? { ...row, ...change } : row)));
  const paste = (event: ClipboardEvent, at: number) => {
    const found = parseDotEnv(event.clipboardData?.getData("text") ?? "");
    if (found.length === 0) return;
    event.preventDefault();
    const names = new Set(found.map(({ name }) => name));
    onChange([...rows.filter((row, index) => index !== at && row.name && !names.has(row.name)), ...found]);
  };
  return (
    <div class="stack">
      {rows.map((row, at) => (
        <div key={at} class="variable">
          <input class="input mono" placeholder="NAME" aria-label={t.nameOf(at + 1)} value={row.name} disabled={why !== undefined} autocomplete="off" spellcheck={false} onPaste={(event) => paste(event, at)} onInput={(event) => set(at, { name: event.currentTarget.value })} />
          <input class="input mono" placeholder={t.value} aria-label={t.valueOf(at + 1)} type={isSecret ? "password" : "text"} value={row.value} disabled={why !== undefined} autocomplete={isSecret ? "new-password" : "off"} spellcheck={false} onInput={(event) => set(at, { value: event.currentTarget.value })} />
          <Button kind="quiet" label={t.remove(row.name)} why={why} onClick={() => onChange(rows.filter((_, index) => index !== at))} icon={<X size={15} aria-hidden="true" />} />
        </div>
      ))}
      <div class="row wrap">
        <Button size="small" why={why} onClick={() => onChange([...rows, { name: "", value: "" }])} icon={<Plus size={14} aria-hidden="true" />}>
          {isSecret ? t.addSecret : t.add}
        </Button>
        <span class="soft small">{t.paste}</span>
      </div>
    </div>
  );
}

export function filled(rows: Variable[]): Variable[] {
  return rows.filter(({ name, value }) => name !== "" || value !== "");
}
