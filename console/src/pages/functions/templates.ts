/** Templates of functions, and the name that the console gives them. */

import { text } from "../../text";
import type { Files } from "../../ui/editor/editor";

export type Language = "nodejs" | "python";

export interface Template {
  key: string;
  label: string;
  hint: string;
  sample: string; // parameters for a first run
  files: Record<Language, Files>;
}

export const LANGUAGES: { value: Language; label: string; hint: string }[] = [
  { value: "python", label: "Python", hint: "def main(params)" },
  { value: "nodejs", label: "Node.js", hint: "exports.main" },
];
export const MAIN_FILE: Record<Language, string> = { nodejs: "index.js", python: "main.py" };

const t = text.functionTemplates;

export const TEMPLATES: Template[] = [
  {
    key: "hello",
    label: t.hello[0],
    hint: t.hello[1],
    sample: '{\n  "name": "Ada"\n}',
    files: {
      python: {
        "main.py": `def main(params):
    name = params.get("name", "world")
    print(f"greeting {name}")
    return {"statusCode": 200, "body": {"hello": name}}
`,
      },
      nodejs: {
        "index.js": `exports.main = async (params) => {
  const name = params.name || "world";
  console.log(\`greeting \${name}\`);
  return { statusCode: 200, body: { hello: name } };
};
`,
      },
    },
  },
  {
    key: "page",
    label: t.page[0],
    hint: t.page[1],
    sample: '{\n  "name": "Ada"\n}',
    files: {
      python: {
        "main.py": `import html
from page import PAGE


def main(params):
    name = html.escape(params.get("name", ""))
    greeting = f"<p>Hello, {name}</p>" if name else ""
    return {"statusCode": 200, "body": PAGE.replace("{greeting}", greeting)}
`,
        "page.py": `PAGE = """<!doctype html>
<meta charset="utf-8">
<title>Hello</title>
{greeting}
<form method="post"><input name="name" placeholder="Your name"> <button>Send</button></form>
"""
`,
      },
      nodejs: {
        "index.js": `const { page } = require("./page");

exports.main = async (params) => ({ statusCode: 200, body: page(params.name) });
`,
        "page.js": `const escape = (text) => text.replace(/[&<>"]/g, (each) => \`&#\${each.charCodeAt(0)};\`);

exports.page = (name) => \`<!doctype html>
<meta charset="utf-8">
<title>Hello</title>
\${name ? \`<p>Hello, \${escape(name)}</p>\` : ""}
<form method="post"><input name="name" placeholder="Your name"> <button>Send</button></form>
\`;
`,
      },
    },
  },
  {
    key: "webhook",
    label: t.webhook[0],
    hint: t.webhook[1],
    sample: '{\n  "event": "push"\n}',
    files: {
      python: {
        "main.py": `import hmac
import os


def main(params):
    # Set the secret WEBHOOK_TOKEN under Environment, and send it in the header X-Token.
    wanted = os.environ.get("WEBHOOK_TOKEN", "")
    given = params.get("__ow_headers", {}).get("x-token", "")
    if wanted and not hmac.compare_digest(wanted, given):
        return {"statusCode": 401, "body": "wrong token"}
    print("received", params.get("event"))
    return {"statusCode": 204}
`,
      },
      nodejs: {
        "index.js": `const { timingSafeEqual } = require("node:crypto");

const same = (one, other) => one.length === other.length && timingSafeEqual(Buffer.from(one), Buffer.from(other));

exports.main = async (params) => {
  // Set the secret WEBHOOK_TOKEN under Environment, and send it in the header X-Token.
  const wanted = process.env.WEBHOOK_TOKEN || "";
  const given = (params.__ow_headers || {})["x-token"] || "";
  if (wanted && !same(wanted, given)) return { statusCode: 401, body: "wrong token" };
  console.log("received", params.event);
  return { statusCode: 204 };
};
`,
      },
    },
  },
  {
    key: "packages",
    label: t.packages[0],
    hint: t.packages[1],
    sample: '{\n  "text": "Hello there"\n}',
    files: {
      python: {
        "main.py": `from slugify import slugify


def main(params):
    return {"statusCode": 200, "body": {"slug": slugify(params.get("text", ""))}}
`,
        "requirements.txt": "python-slugify==8.0.4\n",
      },
      nodejs: {
        "index.js": `const slugify = require("slugify");

exports.main = async (params) => ({ statusCode: 200, body: { slug: slugify(params.text || "", { lower: true }) } });
`,
        "package.json": '{\n  "private": true,\n  "main": "index.js",\n  "dependencies": { "slugify": "1.6.6" }\n}\n',
      },
    },
  },
];

const SUFFIX_LETTERS = "abcdefghijkmnpqrstuvwxyz23456789";
const SUFFIX_LENGTH = 6;
export const NAME_MIN = 4;
export const NAME_MAX = 12;

/** Names made in the console get a random ending, so that two people can choose the same word. */
export function randomSuffix(): string {
  const numbers = crypto.getRandomValues(new Uint8Array(SUFFIX_LENGTH));
  return [...numbers].map((number) => SUFFIX_LETTERS[number % SUFFIX_LETTERS.length]).join("");
}

export function cleanName(given: string): string {
  return given.toLowerCase().replace(/[^a-z0-9-]+/g, "-").slice(0, NAME_MAX);
}

export function isName(name: string): boolean {
  return name.length >= NAME_MIN && name.length <= NAME_MAX && /^[a-z0-9]([a-z0-9-]*[a-z0-9])?$/.test(name);
}

export function languageOf(runtime: string): Language {
  return runtime.startsWith("python") ? "python" : "nodejs";
}
