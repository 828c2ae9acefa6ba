/**
 * Sign-in at an identity provider: authorization code with PKCE (S256) and `state`.
 *
 * The platform asks the provider for its addresses and exchanges the code, so that this page connects to no other host.
 */

import { api } from "../../api/client";
import { keepPlace } from "../../api/session";

export interface Provider {
  issuer: string;
  clientId: string;
}

interface Started {
  issuer: string;
  state: string;
  verifier: string;
}

const KEY = "moorage.oidc";

function random(): string {
  return toBase64Url(crypto.getRandomValues(new Uint8Array(32)));
}

function toBase64Url(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

export async function challengeOf(verifier: string): Promise<string> {
  return toBase64Url(new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier))));
}

export function redirectUri(): string {
  return `${location.origin}/sign-in/return`;
}

export function nameOf(issuer: string): string {
  const host = new URL(issuer).hostname;
  return host === "accounts.google.com" ? "Google" : host;
}

/** Leave for the page of the provider. */
export async function begin(provider: Provider): Promise<void> {
  const started: Started = { issuer: provider.issuer, state: random(), verifier: random() };
  const { url } = await api.post("/v1/auth/oidc/begin", {
    body: {
      issuer: provider.issuer,
      redirect_uri: redirectUri(),
      state: started.state,
      code_challenge: await challengeOf(started.verifier),
    },
  });
  keepPlace();
  sessionStorage.setItem(KEY, JSON.stringify(started));
  location.assign(url);
}

/** Exchange the code in the address for an ID token. */
export async function finish(query: Record<string, string>): Promise<string> {
  const started = JSON.parse(sessionStorage.getItem(KEY) ?? "null") as Started | null;
  sessionStorage.removeItem(KEY);
  if (!started || !query["code"] || query["state"] !== started.state) throw new Error("state");
  const { id_token } = await api.post("/v1/auth/oidc/token", {
    body: { issuer: started.issuer, code: query["code"], code_verifier: started.verifier, redirect_uri: redirectUri() },
  });
  return id_token;
}
