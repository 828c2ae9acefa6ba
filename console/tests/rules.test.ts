/** Tests of what redirects and header rules do to a path, and of `.env` files: `node --test console/tests/rules.test.ts`. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { dotenvLine, looksSecret, parseDotenv } from "../src/lib/dotenv.ts";
import { evaluate, match, redirectOf } from "../src/lib/rules.ts";

const to = (source: string, destination: string, path: string) => redirectOf(path, [{ source, destination, status: 301 }])?.to;

test("a source without wildcards is one path", () => {
  assert.equal(to("/old", "/new", "/old"), "/new");
  assert.equal(to("/old", "/new", "/old/"), undefined);
  assert.equal(to("/old", "/new", "/older"), undefined);
  assert.equal(to("/caf%C3%A9", "/new", "/café"), "/new");
});

test("wildcards are one part, or the rest of the path", () => {
  assert.equal(to("/blog/:slug", "/posts/:slug", "/blog/a"), "/posts/a");
  assert.equal(to("/blog/:slug", "/posts/:slug", "/blog/"), undefined);
  assert.equal(to("/blog/:slug", "/posts/:slug", "/blog/a/b"), undefined);
  assert.equal(to("/docs/*", "https://docs.example.com/*", "/docs/a/b"), "https://docs.example.com/a/b");
  assert.equal(to("/docs/*", "/d/:splat", "/docs/"), "/d/");
  assert.equal(to("/docs/*", "/d/*", "/docs//evil.example"), "/d/evil.example");
  assert.equal(to("/*/edit", "/change/*", "/a/edit"), "/change/a");
  assert.equal(to("/:name.html", "/:name", "/about.html"), "/about");
  assert.equal(match("/*.css", "/a/b.css")?.[0]?.value, "a/b");
  assert.equal(match("/*.css", "/a/b.js"), undefined);
});

test("the query is kept, unless the destination has its own", () => {
  assert.equal(to("/old", "/new", "/old?page=2"), "/new?page=2");
  assert.equal(to("/old", "/new?from=old", "/old?page=2"), "/new?from=old");
  assert.equal(to("/old", "/new#part", "/old?page=2"), "/new?page=2#part");
});

test("a path is followed to its end, and the first rule of a header wins", () => {
  const redirects = [
    { source: "/a", destination: "/b", status: 301 },
    { source: "/b", destination: "https://shop.example.com/c", status: 302 },
    { source: "/x", destination: "/y", status: 301 },
    { source: "/y", destination: "/x", status: 301 },
    { source: "/out", destination: "https://example.org/", status: 307 },
  ];
  const headers = [
    { source: "/c", name: "X-Frame-Options", value: "SAMEORIGIN" },
    { source: "/*", name: "x-frame-options", value: "DENY" },
    { source: "/*", name: "X-Own", value: "1" },
  ];
  const found = evaluate("/a", redirects, headers, "https://shop.example.com");

  assert.deepEqual(found.steps.map((step) => [step.rule, step.status]), [[0, 301], [1, 302]]);
  assert.deepEqual([found.end, found.path], ["served", "/c"]);
  assert.deepEqual(found.headers, [["X-Frame-Options", "SAMEORIGIN"], ["X-Own", "1"]]);
  assert.equal(evaluate("/x", redirects, []).end, "loop");
  assert.equal(evaluate("/out", redirects, headers).end, "elsewhere");
});

test("a .env file is read as programs read it", () => {
  const { values, bad } = parseDotenv(
    ["# comment", "A=1", "export B = two words # note", "C='$keep #this'", 'D="line\\nbreak \\"q\\""', 'E="two', 'lines"', "F=", "no value", "A=2", "G=a#b"].join("\r\n"),
  );

  assert.deepEqual(Object.fromEntries(values.map(({ name, value }) => [name, value])), {
    A: "2", B: "two words", C: "$keep #this", D: 'line\nbreak "q"', E: "two\nlines", F: "", G: "a#b",
  });
  assert.deepEqual(bad, [9]);
});

test("what is written is read again", () => {
  for (const value of ["", "plain", "two words", 'a "quote"', "line\nbreak", "back\\slash", "$HOME", "#x", "'"]) {
    assert.deepEqual(parseDotenv(dotenvLine({ name: "A", value })).values, [{ name: "A", value }]);
  }
});

test("names and values of secrets are recognized", () => {
  for (const name of ["STRIPE_SECRET", "API_KEY", "github_token", "DATABASE_URL"]) assert.ok(looksSecret({ name, value: "x" }), name);
  assert.ok(looksSecret({ name: "REDIS", value: "redis://user:word@host:6379" }));
  assert.ok(!looksSecret({ name: "API_URL", value: "https://api.example.com" }));
});
