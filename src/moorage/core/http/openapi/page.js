"use strict";
(() => {
  const TOKEN = "moorage-token";
  const ORGANIZATION = "moorage-organization";
  const CONSOLE_SESSION = "moorage.session"; // key of the console in localStorage
  const MAX_SHOWN = 200000;
  const at = (id) => document.getElementById(id);

  function make(tag, text, attributes) {
    const element = document.createElement(tag);
    if (text) element.textContent = text;
    for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
    return element;
  }

  // The token stays in this tab: sessionStorage ends with it, and no other tab reads it.
  function showCredential() {
    const token = sessionStorage.getItem(TOKEN);
    const organization = sessionStorage.getItem(ORGANIZATION);
    at("token-state").textContent = token
      ? `A token is stored in this tab${organization ? `, for organization ${organization}` : ""}.`
      : "No token is stored.";
  }

  function store(name, value) {
    if (value) sessionStorage.setItem(name, value);
    else sessionStorage.removeItem(name);
  }

  at("token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    store(TOKEN, at("token").value.trim());
    store(ORGANIZATION, at("organization").value.trim());
    at("token").value = "";
    showCredential();
  });

  function consoleSession() {
    try {
      return JSON.parse(localStorage.getItem(CONSOLE_SESSION) || "null");
    } catch {
      return null;
    }
  }

  const session = consoleSession();
  at("take").hidden = !(session && session.token);
  at("take").addEventListener("click", () => {
    store(TOKEN, session.token);
    store(ORGANIZATION, String(session.organizationId || ""));
    showCredential();
  });

  // Shows the routes that contain all words, and hides groups without one.
  at("filter").addEventListener("input", (event) => {
    const words = event.target.value.toLowerCase().split(/\s+/);
    for (const group of document.querySelectorAll("nav details")) {
      let count = 0;
      for (const item of group.querySelectorAll("li")) {
        item.hidden = !words.every((word) => item.textContent.toLowerCase().includes(word));
        if (!item.hidden) count += 1;
      }
      group.hidden = count === 0;
    }
  });

  function field(form, kind, name, isRequired, value) {
    const label = make("label", name);
    const isFile = kind === "form" && value === "@FILE";
    const input = make("input", "", { type: isFile ? "file" : "text", "data-kind": kind, "data-name": name });
    if (kind === "form" && !isFile) input.value = value;
    if (isRequired) input.setAttribute("required", "");
    label.append(input);
    form.append(label);
    return input;
  }

  function build(box) {
    const route = JSON.parse(box.getAttribute("data-try"));
    const form = make("form", "");
    const inputs = [];
    for (const name of route.path_names) inputs.push(field(form, "path", name, true, ""));
    for (const [name, isRequired] of route.query) inputs.push(field(form, "query", name, isRequired, ""));
    for (const [name, value] of Object.entries(route.form)) inputs.push(field(form, "form", name, false, String(value)));
    let body = null;
    if (route.body !== null) {
      body = make("textarea", "", { rows: "8", spellcheck: "false", "aria-label": "Body" });
      body.value = JSON.stringify(route.body, null, 2);
      form.append(body);
    }
    const send = make("button", `Send ${route.method.toUpperCase()}`, { type: "submit" });
    const stop = make("button", "Stop", { type: "button", class: "button plain", hidden: "" });
    const buttons = make("div", "", { class: "row" });
    buttons.append(send, stop);
    const answer = make("div", "", { class: "answer", hidden: "" });
    const status = make("span", "", { class: "status", role: "status" });
    const output = make("pre", "", { tabindex: "0", "aria-label": "Answer" });
    answer.append(status, output);
    form.append(buttons, answer);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      return run(route, inputs, body, { send, stop, answer, status, output });
    });
    box.append(form);
  }

  function request(route, inputs, body) {
    let path = route.path;
    const query = new URLSearchParams();
    const sent = new FormData();
    for (const input of inputs) {
      const name = input.getAttribute("data-name");
      const kind = input.getAttribute("data-kind");
      if (kind === "path") path = path.replace(`{${name}}`, encodeURIComponent(input.value));
      else if (kind === "query" && input.value) query.append(name, input.value);
      else if (kind === "form" && input.files && input.files.length) sent.append(name, input.files[0]);
      else if (kind === "form" && !input.files && input.value) sent.append(name, input.value);
    }
    const headers = {};
    const token = sessionStorage.getItem(TOKEN);
    const organization = sessionStorage.getItem(ORGANIZATION);
    if (token) headers.Authorization = `Bearer ${token}`;
    if (organization) headers["x-organization-id"] = organization;
    const options = { method: route.method.toUpperCase(), headers, credentials: "omit", cache: "no-store" };
    if (body !== null) {
      headers["Content-Type"] = "application/json";
      options.body = body.value;
    } else if (Object.keys(route.form).length) {
      options.body = sent;
    }
    const text = query.toString();
    return [path + (text ? `?${text}` : ""), options];
  }

  function pretty(text) {
    try {
      return JSON.stringify(JSON.parse(text), null, 2);
    } catch {
      return text;
    }
  }

  async function show(response, output) {
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      text += decoder.decode(value, { stream: true });
      if (text.length > MAX_SHOWN) text = `${text.slice(0, MAX_SHOWN)}\n[cut]`;
      output.textContent = text;
      if (text.length > MAX_SHOWN) {
        await reader.cancel();
        break;
      }
    }
    output.textContent = pretty(text);
  }

  async function run(route, inputs, body, { send, stop, answer, status, output }) {
    if (route.method === "delete" && !confirm(`Send DELETE ${route.path}?`)) return;
    const aborting = new AbortController();
    const abort = () => aborting.abort();
    const say = (text, look) => {
      status.textContent = text;
      status.className = `status ${look}`;
    };
    stop.addEventListener("click", abort);
    send.disabled = true;
    stop.hidden = false;
    answer.hidden = false;
    output.textContent = "";
    say("Waiting for the answer", "");
    const startedAt = performance.now();
    try {
      const [path, options] = request(route, inputs, body);
      const response = await fetch(path, { ...options, signal: aborting.signal });
      const took = Math.round(performance.now() - startedAt);
      say(`${response.status} ${response.statusText} after ${took} ms`, response.ok ? "ok" : "bad");
      await show(response, output);
    } catch (error) {
      say(aborting.signal.aborted ? "Stopped" : `No answer: ${error.message}`, "bad");
    } finally {
      stop.removeEventListener("click", abort);
      stop.hidden = true;
      send.disabled = false;
    }
  }

  for (const box of document.querySelectorAll("details[data-try]")) {
    box.addEventListener("toggle", () => {
      if (box.open && box.children.length === 1) build(box);
    });
  }
  showCredential();
})();
