/** Build arguments of a Dockerfile as lines of text: `NAME=value`. */

export function toLines(args: Record<string, string> | null | undefined): string {
  return Object.entries(args ?? {})
    .map(([name, value]) => `${name}=${value}`)
    .join("\n");
}

/** Read lines; one without `=` is a name without a value, which the server judges. */
export function fromLines(lines: string): Record<string, string> {
  const found: Record<string, string> = {};
  for (const line of lines.split(/\r?\n/)) {
    const at = line.indexOf("=");
    const name = (at < 0 ? line : line.slice(0, at)).trim();
    if (name) found[name] = at < 0 ? "" : line.slice(at + 1);
  }
  return found;
}
