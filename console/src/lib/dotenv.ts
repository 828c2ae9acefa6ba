/** Reads the lines of a `.env` file: comments, quotes, `export`, and quoted values over several lines. */

export interface DotenvValue {
  name: string;
  value: string;
}

export interface Dotenv {
  values: DotenvValue[]; // each name once; the last value counts
  bad: number[]; // lines that are no KEY=value, from 1
}

const ASSIGNMENT = /^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]*)\s*=\s*([^]*)$/;
const ESCAPES: Record<string, string> = { n: "\n", r: "\r", t: "\t", '"': '"', "\\": "\\", $: "$" };

export function parseDotenv(text: string): Dotenv {
  const lines = text.replace(/^\uFEFF/, "").split(/\r\n|\n|\r/);
  const found = new Map<string, string>();
  const bad: number[] = [];
  for (let at = 0; at < lines.length; at += 1) {
    const line = lines[at]!;
    if (/^\s*(#|$)/.test(line)) continue;
    const match = ASSIGNMENT.exec(line);
    if (!match) {
      bad.push(at + 1);
      continue;
    }
    const [value, last] = valueAt(lines, at, match[2]!);
    found.delete(match[1]!);
    found.set(match[1]!, value);
    at = last;
  }
  return { values: [...found].map(([name, value]) => ({ name, value })), bad };
}

/** Return a value that begins with `rest` in a line, and the line in which it ends. */
function valueAt(lines: string[], at: number, rest: string): [value: string, last: number] {
  const quote = rest[0];
  if (quote !== '"' && quote !== "'" && quote !== "`") return [rest.replace(/\s+#.*$/, "").replace(/^#.*$/, "").trimEnd(), at];
  let inner = rest.slice(1);
  let last = at;
  let end = endOf(inner, quote);
  while (end < 0 && last + 1 < lines.length) {
    last += 1;
    inner += `\n${lines[last]}`;
    end = endOf(inner, quote);
  }
  if (end < 0) return [rest.trimEnd(), at]; // The quote never ends, so it is part of the value.
  const value = inner.slice(0, end);
  return [quote === '"' ? value.replace(/\\([nrt"\\$])/g, (_, mark: string) => ESCAPES[mark]!) : value, last];
}

function endOf(text: string, quote: string): number {
  for (let at = 0; at < text.length; at += 1) {
    if (text[at] === "\\" && quote === '"') at += 1;
    else if (text[at] === quote) return at;
  }
  return -1;
}

/** Return a value as it is written in a `.env` file. */
export function dotenvLine({ name, value }: DotenvValue): string {
  if (/^[A-Za-z0-9_./:@%+,=-]*$/.test(value)) return `${name}=${value}`;
  return `${name}="${value.replace(/[\\"$]/g, "\\$&").replaceAll("\n", "\\n").replaceAll("\r", "\\r")}"`;
}

const SECRET_NAME = /(SECRET|TOKEN|PASSWORD|PASSWD|PRIVATE|CREDENTIAL|API_?KEY|ACCESS_?KEY|_KEY$|_DSN$|^DATABASE_URL)/i;

/** Whether a value looks like one that nobody should read. */
export function looksSecret({ name, value }: DotenvValue): boolean {
  return SECRET_NAME.test(name) || /^[a-z][a-z0-9+.-]*:\/\/[^/\s:@]+:[^/\s@]+@/i.test(value) || value.includes("PRIVATE KEY");
}

/** The fields of a new project for pasted lines; names that look secret are stored as secrets. */
export function environmentOf(pasted: string): { env?: DotenvValue[]; secrets?: DotenvValue[] } {
  const { values } = parseDotenv(pasted);
  const secrets = values.filter(looksSecret);
  const env = values.filter((each) => !looksSecret(each));
  return { ...(env.length > 0 && { env }), ...(secrets.length > 0 && { secrets }) };
}
