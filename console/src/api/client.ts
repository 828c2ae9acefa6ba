/**
 * Requests to the API. The types of paths, queries, bodies and answers come from the OpenAPI document:
 *
 *   const { items } = await api.get("/v1/projects", { query: { limit: 50 } });
 *   await api.post("/v1/projects/{name}/deploy", { path: { name }, body: { operation: "deploy" } });
 *
 * A refused token signs out and leads back to the page after the next sign-in. Writes carry an idempotency key.
 */

import { signal } from "@preact/signals";
import { text } from "../text";
import { ApiError, errorOf, toApiError } from "./errors";
import { expire, markAccepted, session } from "./session";
import type { Body, Data, Method, PathOf, PathValues, Query } from "./types";

export interface Sent {
  path?: Record<string, string | number> | undefined;
  query?: Record<string, unknown> | undefined;
  body?: unknown;
  key?: string | undefined; // idempotency key; a new one for each write if there is none
  signal?: AbortSignal | undefined;
  accept?: string | undefined;
  headers?: Record<string, string> | undefined;
}

/** Whether the last request got an answer; the frame shows a thin bar while it is false. */
export const isOnline = signal(true);

export function urlOf(path: string, values: Sent["path"] = {}, query: Sent["query"] = {}): string {
  const url = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(values[name] ?? "")));
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") search.set(name, String(value));
  }
  const text = search.toString();
  return text ? `${url}?${text}` : url;
}

export function headersOf(method: Method, sent: Sent): Headers {
  const headers = new Headers(sent.headers);
  headers.set("Accept", sent.accept ?? "application/json");
  const current = session.peek();
  if (current) {
    headers.set("Authorization", `Bearer ${current.token}`);
    if (current.organizationId) headers.set("X-Organization-Id", current.organizationId);
    // A stream is never sent twice, and the server refuses a key for it.
    if (method !== "get" && sent.accept !== "text/event-stream") headers.set("Idempotency-Key", sent.key ?? crypto.randomUUID());
  }
  if (sent.body !== undefined && !(sent.body instanceof FormData)) headers.set("Content-Type", "application/json");
  return headers;
}

/** Send a request and return the response if it is a success; otherwise throw an `ApiError`. */
export async function send(method: Method, path: string, sent: Sent = {}): Promise<Response> {
  const token = session.peek()?.token ?? "";
  let response: Response;
  try {
    response = await fetch(urlOf(path, sent.path, sent.query), {
      method: method.toUpperCase(),
      headers: headersOf(method, sent),
      body: sent.body === undefined ? null : sent.body instanceof FormData ? sent.body : JSON.stringify(sent.body),
      signal: sent.signal ?? null,
      credentials: "omit",
      cache: "no-store",
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    isOnline.value = false;
    throw toApiError(error);
  }
  isOnline.value = true;
  if (response.ok) {
    if (token) markAccepted();
    return response;
  }
  const error = await errorOf(response);
  if (response.status === 401 && token) expire(token);
  throw error;
}

async function call(method: Method, path: string, sent: Sent = {}): Promise<unknown> {
  const response = await send(method, path, sent);
  try {
    const answer = (await response.json()) as { success?: boolean; data?: unknown };
    return "success" in answer ? answer.data : answer;
  } catch {
    throw new ApiError(0, "offline", text.common.cutOff);
  }
}

/** Names of the fields that a route needs are needed here too; the others may be left out. */
type Wanted<P, Q, B> = ([P] extends [undefined] ? { path?: undefined } : { path: P }) &
  ([Q] extends [undefined] ? { query?: undefined } : { query?: Q }) &
  ([B] extends [undefined] ? { body?: undefined } : { body?: B }) &
  Omit<Sent, "path" | "query" | "body">;
type Arguments<P extends PathOf<M>, M extends Method> = PathValues<P, M> extends undefined
  ? [sent?: Wanted<undefined, Query<P, M>, Body<P, M>>]
  : [sent: Wanted<PathValues<P, M>, Query<P, M>, Body<P, M>>];
export type ReadArguments<P extends PathOf<"get">> = Arguments<P, "get">;

function caller<M extends Method>(method: M) {
  return <P extends PathOf<M>>(path: P, ...[sent]: Arguments<P, M>): Promise<Data<P, M>> =>
    call(method, path, sent as Sent) as Promise<Data<P, M>>;
}

export const api = {
  get: caller("get"),
  post: caller("post"),
  put: caller("put"),
  patch: caller("patch"),
  delete: caller("delete"),
};
