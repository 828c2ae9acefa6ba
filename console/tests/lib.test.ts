/** Tests of modules without a browser: `node --test console/tests/lib.test.ts`; tests/console runs them. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { EventParser } from "../src/api/events.ts";
import { parseAnsi, plain } from "../src/lib/ansi.ts";
import { diffLines, hunksOf } from "../src/lib/diff.ts";
import { bytes, compact, duration, relative, slugify } from "../src/lib/format.ts";
import { archiveOf, crc32, zip } from "../src/lib/zip.ts";

test("colours become classes, and everything else of a terminal is removed", () => {
  assert.deepEqual(parseAnsi("\x1b[1;31merror\x1b[0m done"), [
    { text: "error", classes: "ansi-red ansi-bold" },
    { text: " done", classes: "" },
  ]);
  assert.deepEqual(parseAnsi("\x1b[38;5;196mred\x1b[39m\x1b[38;2;0;0;250mblue"), [
    { text: "red", classes: "ansi-red" },
    { text: "blue", classes: "ansi-blue" },
  ]);
  assert.equal(plain("\x1b]8;;http://evil.example\x07link\x1b]8;;\x07 \x1b[2Kabc\u202e\x00"), "link abc");
  assert.equal(plain("\x1b]0;unfinished title"), "");
});

test("events may be cut anywhere, and keep their id for a new connection", () => {
  const whole = 'retry: 500\nid: 7\nevent: log\ndata: {"message":"a"}\n\n: a comment\n\ndata: one\r\ndata: two\r\n\r\n';
  const expected = [
    { name: "log", data: '{"message":"a"}', id: "7" },
    { name: "message", data: "one\ntwo", id: "7" },
  ];
  for (let size = 1; size <= whole.length; size += 1) {
    const parser = new EventParser();
    const events = [];
    for (let at = 0; at < whole.length; at += size) events.push(...parser.push(whole.slice(at, at + size)));
    assert.deepEqual(events, expected, `in chunks of ${size}`);
    assert.equal(parser.lastId, "7");
    assert.equal(parser.retryMs, 500);
  }
});

test("numbers, sizes and times are short", () => {
  const now = Date.parse("2030-01-31T12:00:00Z");
  assert.equal(relative("2030-01-31T11:58:00Z", now), "2 min ago");
  assert.equal(relative("2030-01-31T15:00:00Z", now), "in 3 h");
  assert.equal(relative(now, now), "now");
  assert.equal(duration(8_240), "8.2 s");
  assert.equal(duration(125_000), "2 min 5 s");
  assert.equal(bytes(1_536), "1.5 KB");
  assert.equal(compact(12_345), "12.3 k");
  assert.equal(slugify("  Mein Shop (alt)! "), "mein-shop-alt");
});

test("a folder becomes an archive without its own name and without what no site needs", async () => {
  const file = new Blob(["hello"]);
  const made = await archiveOf([
    { path: "shop/index.html", file },
    { path: "shop/.git/config", file },
    { path: "shop/assets/a.css", file },
  ]);
  const raw = new TextDecoder("latin1").decode(await made.archive.arrayBuffer());

  assert.equal(made.name, "shop");
  assert.equal(made.fileCount, 2);
  assert.ok(raw.includes("assets/a.css"));
  assert.ok(!raw.includes(".git"));
  assert.ok(!raw.includes("shop/"));
});

test("an archive stays as it is", async () => {
  const archive = await zip([{ path: "index.html", file: new Blob(["hello"]) }]);
  const made = await archiveOf([{ path: "shop.zip", file: archive }]);

  assert.equal(made.archive, archive);
  assert.equal(made.name, "shop");
  assert.equal(crc32(new TextEncoder().encode("123456789")), 0xcbf43926);
});

test("a difference leads from one text to the other, with few lines around it", () => {
  const before = "a\nb\nc\nd\ne\nf\ng\nh\n";
  const after = "a\nb\nc\nd\nE\nf\ng\nh\ni\n";
  const lines = diffLines(before, after);
  const sideOf = (left: string) => lines.filter(({ kind }) => kind !== left).map(({ text }) => `${text}\n`).join("");
  assert.equal(sideOf("added"), before);
  assert.equal(sideOf("removed"), after);
  assert.deepEqual(lines.filter(({ kind }) => kind !== "same").map(({ kind, text }) => `${kind} ${text}`), ["removed e", "added E", "added i"]);
  assert.deepEqual(hunksOf(lines, 1).hunks.map(({ skipped, lines: { length } }) => [skipped, length]), [[3, 4], [1, 2]]);
  assert.deepEqual(diffLines("", ""), []);
});
