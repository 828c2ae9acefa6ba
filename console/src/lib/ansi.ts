/**
 * Colours of terminal output, as pieces of text with classes. Nothing of a log ever becomes HTML.
 *
 * Known are the 16 colours, 256 colours and 24-bit colours (mapped to the nearest of the 16), bold, dim, italic and
 * underline. All other escape sequences, control characters and marks that change the direction of text are removed.
 */

export interface Piece {
  text: string;
  classes: string; // "" for plain text
}

// Sequences: CSI (colours and cursor), OSC (titles and links, which may be unfinished), and two-character escapes.
const ESCAPE = /\x1b\[([0-9;:?]*)[ -/]*([@-~])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-Z\\-_]|\x1b/g;
// Control characters except tab, and marks that turn or hide text.
const UNSAFE = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;
const NAMES = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

interface Style {
  color: string;
  bold: boolean;
  dim: boolean;
  italic: boolean;
  underline: boolean;
}

const PLAIN: Style = { color: "", bold: false, dim: false, italic: false, underline: false };

export function plain(line: string): string {
  return line.replace(ESCAPE, "").replace(UNSAFE, "");
}

export function parseAnsi(line: string): Piece[] {
  if (!line.includes("\x1b")) return [{ text: line.replace(UNSAFE, ""), classes: "" }];
  const pieces: Piece[] = [];
  let style = PLAIN;
  let from = 0;
  const add = (to: number) => {
    const text = line.slice(from, to).replace(UNSAFE, "");
    if (text) pieces.push({ text, classes: classesOf(style) });
  };
  for (const match of line.matchAll(ESCAPE)) {
    add(match.index);
    from = match.index + match[0].length;
    if (match[2] === "m") style = changed(style, match[1] ?? "");
  }
  add(line.length);
  return pieces;
}

function classesOf(style: Style): string {
  const classes = [style.color && `ansi-${style.color}`];
  for (const name of ["bold", "dim", "italic", "underline"] as const) if (style[name]) classes.push(`ansi-${name}`);
  return classes.filter(Boolean).join(" ");
}

function changed(style: Style, codes: string): Style {
  let next = { ...style };
  const numbers = codes.split(/[;:]/).map((code) => Number(code || 0));
  for (let at = 0; at < numbers.length; at += 1) {
    const code = numbers[at]!;
    if (code === 0) next = { ...PLAIN };
    else if (code === 1) next.bold = true;
    else if (code === 2) next.dim = true;
    else if (code === 3) next.italic = true;
    else if (code === 4) next.underline = true;
    else if (code === 22) next.bold = next.dim = false;
    else if (code === 23) next.italic = false;
    else if (code === 24) next.underline = false;
    else if (code >= 30 && code <= 37) next.color = NAMES[code - 30]!;
    else if (code >= 90 && code <= 97) next.color = NAMES[code - 90]!;
    else if (code === 39) next.color = "";
    else if (code === 38 || code === 48) {
      const isPalette = numbers[at + 1] === 5;
      const color = isPalette ? fromPalette(numbers[at + 2] ?? 7) : nearest(numbers.slice(at + 2, at + 5));
      at += isPalette ? 2 : 4;
      if (code === 38) next.color = color;
    }
  }
  return next;
}

function fromPalette(index: number): string {
  if (index < 16) return NAMES[index % 8]!;
  if (index > 231) return "white";
  const cube = index - 16;
  return nearest([Math.floor(cube / 36) * 51, (Math.floor(cube / 6) % 6) * 51, (cube % 6) * 51]);
}

function nearest([red = 0, green = 0, blue = 0]: number[]): string {
  const high = Math.max(red, green, blue);
  const bit = (value: number) => (value > high / 2 ? 1 : 0);
  return NAMES[bit(red) + 2 * bit(green) + 4 * bit(blue)]!;
}
