// A real OpenID provider for the tests, on two loopback ports: the issuer itself, and a control port that makes it do
// what issuers do in the wild: rotate keys, drop old ones, go down, answer slowly. It prints where both are, as one
// JSON line, once it serves; it ends when its standard input does, so that it cannot outlive the tests.
import { createServer } from "node:http";
import { generateKeyPairSync, randomBytes } from "node:crypto";
import { CompactSign, importJWK } from "jose";
import Provider from "oidc-provider";

const HOST = "127.0.0.1";
const accounts = new Map();
// The first key is RSA, as with most issuers. Those it rotates to are EC: an RSA key takes a while to make.
const FIRST = toJwk(generateKeyPairSync("rsa", { modulusLength: 2048 }), "RS256");
let keys = [FIRST];
let answer = null;
let port = 0;
let isSlow = false;

function toJwk({ privateKey }, alg) {
  return { ...privateKey.export({ format: "jwk" }), kid: randomBytes(8).toString("hex"), alg, use: "sig" };
}

const newKey = () => toJwk(generateKeyPairSync("ec", { namedCurve: "P-256" }), "ES256");

const issuer = () => `http://${HOST}:${port}`;

function client(id) {
  return {
    client_id: id,
    client_secret: `${id}-secret`,
    redirect_uris: ["http://127.0.0.1:9/callback"],
    grant_types: ["authorization_code"],
    response_types: ["code"],
    id_token_signed_response_alg: keys[0].alg,
  };
}

// A program on the user's machine: no secret, PKCE, and a redirect to any port of the loopback interface.
function nativeClient(id) {
  return {
    ...client(id),
    client_secret: undefined,
    application_type: "native",
    token_endpoint_auth_method: "none",
    redirect_uris: ["http://127.0.0.1/callback", "http://127.0.0.1/sign-in/return"],
  };
}

// The server side of an application: it redirects like the program above, and has to prove that it knows its secret.
function secretClient(id, method) {
  return { ...nativeClient(id), client_secret: `${id}-secret`, token_endpoint_auth_method: method };
}

const PKCE = ["moorage-native", "moorage-basic", "moorage-post"];

// The keys of a provider are fixed when it is made, so a rotation makes another one on the same address.
function makeProvider() {
  const provider = new Provider(issuer(), {
    clients: [
      client("moorage"),
      client("somebody-else"),
      nativeClient("moorage-native"),
      secretClient("moorage-basic", "client_secret_basic"),
      secretClient("moorage-post", "client_secret_post"),
    ],
    jwks: { keys },
    cookies: { keys: ["for tests only"] },
    claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["given_name", "family_name", "picture"] },
    conformIdTokenClaims: false,
    features: { devInteractions: { enabled: false } },
    pkce: { required: (_ctx, { clientId }) => PKCE.includes(clientId) },
    interactions: { url: (_ctx, interaction) => `/interaction/${interaction.uid}` },
    findAccount: (_ctx, sub) => ({ accountId: sub, claims: () => claimsOf(sub) }),
    loadExistingGrant: grantEverything,
  });
  const callback = provider.callback();
  return (req, res) => (req.url.startsWith("/interaction/") ? logIn(provider, req, res) : callback(req, res));
}

function claimsOf(sub) {
  return { sub, email: `${sub}@example.com`, email_verified: true, ...accounts.get(sub) };
}

async function grantEverything(ctx) {
  const { provider, client: asking, session } = ctx.oidc;
  const grant = new provider.Grant({ clientId: asking.clientId, accountId: session.accountId });
  grant.addOIDCScope("openid email profile");
  await grant.save();
  return grant;
}

const FORM = `<!doctype html><title>Log in</title><form><label>Account <input name="account"></label><button>Log in</button></form>`;

// Whoever is hinted at is logged in at once: most tests are about the token. Browsers get a form that asks who it is.
async function logIn(provider, req, res) {
  const { params } = await provider.interactionDetails(req, res);
  const accountId = params.login_hint ?? new URL(req.url, issuer()).searchParams.get("account");
  if (!accountId) {
    res.setHeader("content-type", "text/html");
    res.end(FORM);
    return;
  }
  // A native client is asked for consent each time.
  await provider.interactionFinished(req, res, { login: { accountId }, consent: {} });
}

function slowly(res) {
  const end = res.end.bind(res);
  res.end = (body) => {
    const bytes = Buffer.from(body ?? "");
    res.write(bytes.subarray(0, bytes.length >> 1));
    setTimeout(() => end(bytes.subarray(bytes.length >> 1)), 30);
    return res;
  };
}

const server = createServer((req, res) => {
  if (isSlow) slowly(res);
  answer(req, res);
});

const listen = (at) => new Promise((resolve) => server.listen(at, HOST, resolve));
const hangUp = () => new Promise((resolve) => (server.close(resolve), server.closeAllConnections()));

// Signs odd claims with the real key. `claims` is JSON text: JavaScript has no number like 10**400. A header that is
// null is left out.
async function sign({ claims, header }) {
  const jwk = keys[0];
  const wanted = Object.entries({ alg: jwk.alg, kid: jwk.kid, ...header }).filter(([, value]) => value !== null);
  const signer = new CompactSign(Buffer.from(claims)).setProtectedHeader(Object.fromEntries(wanted));
  return { token: await signer.sign(await importJWK(jwk)) };
}

const COMMANDS = {
  account: ({ sub, ...claims }) => accounts.set(sub, claims),
  rotate: () => (keys = [newKey(), ...keys]),
  forget: () => (keys = keys.slice(0, 1)),
  slow: () => (isSlow = true),
  down: hangUp,
  up: () => listen(port),
  reset: async () => {
    accounts.clear();
    keys = [FIRST];
    isSlow = false;
    if (!server.listening) await listen(port);
  },
};

const control = createServer(async (req, res) => {
  const name = req.url.slice(1);
  const chunks = [];
  for await (const chunk of req) chunks.push(chunk);
  const given = JSON.parse(Buffer.concat(chunks).toString() || "{}");
  const result = name === "sign" ? await sign(given) : (await COMMANDS[name](given), {});
  if (["rotate", "forget", "reset"].includes(name)) answer = makeProvider();
  res.setHeader("content-type", "application/json");
  res.end(JSON.stringify(result));
});

await listen(0);
port = server.address().port;
answer = makeProvider();
await new Promise((resolve) => control.listen(0, HOST, resolve));
console.log(JSON.stringify({ issuer: issuer(), control: `http://${HOST}:${control.address().port}` }));
process.stdin.on("end", () => process.exit(0)).resume();
