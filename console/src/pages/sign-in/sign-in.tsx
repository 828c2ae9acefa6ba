/** Sign-in: one click for the demo, identity providers, or a token. */

import { ArrowRight, KeyRound } from "lucide-preact";
import { useLocation } from "preact-iso";
import { useState } from "preact/hooks";
import { useAction } from "../../api/actions";
import { api } from "../../api/client";
import { ApiError } from "../../api/errors";
import { useResource } from "../../api/resource";
import { hasExpired, signIn, takePlace } from "../../api/session";
import { text } from "../../text";
import { Button } from "../../ui/button";
import { ErrorBox, Notice, Skeleton } from "../../ui/feedback";
import { Field } from "../../ui/form";
import { begin, nameOf } from "./oidc";
import { SignInShell } from "./shell";

export default function SignIn() {
  const { route } = useLocation();
  return (
    <SignInShell title={text.signIn.title} subtitle={text.signIn.subtitle}>
      {hasExpired.value && <Notice kind="warn">{text.frame.expired}</Notice>}
      <Ways onDone={() => route(takePlace(), true)} />
    </SignInShell>
  );
}

/** All ways to sign in. A page that has to stay (`isHere`) opens identity providers in another tab. */
export function Ways({ onDone, isHere = false }: { onDone: () => void; isHere?: boolean }) {
  const methods = useResource("/v1/auth/methods", {});
  const demo = useAction(
    async () => {
      const login = await api.post("/v1/auth/demo");
      signIn({ token: login.token, kind: "session", organizationId: login.organizationId });
    },
    { isQuiet: true, onDone },
  );
  const provider = useAction(begin, { isQuiet: true });
  const error = demo.error ?? provider.error ?? methods.error;
  return (
    <>
      {error && <ErrorBox error={error} onRetry={methods.error ? () => void methods.reload() : undefined} />}
      {methods.isLoading && <Skeleton height={40} />}
      {methods.data?.demo && (
        <div class="stack tight">
          <Button kind="primary" size="large" isWide isBusy={demo.isBusy} onClick={() => demo.run()} icon={<ArrowRight size={16} aria-hidden="true" />}>
            {text.signIn.demo}
          </Button>
          <p class="soft small">{text.signIn.demoHint}</p>
        </div>
      )}
      {methods.data?.providers.map((each) => (
        <Button key={each.issuer} size="large" isWide isBusy={provider.isBusy} onClick={() => (isHere ? void open("/", "_blank", "noopener") : provider.run(each))}>
          {(isHere ? text.signIn.providerElsewhere : text.signIn.provider)(nameOf(each.issuer))}
        </Button>
      ))}
      {(methods.data?.demo || (methods.data?.providers.length ?? 0) > 0) && (
        <div class="or">
          <span>{text.signIn.or}</span>
        </div>
      )}
      <TokenForm onDone={onDone} />
    </>
  );
}

function TokenForm({ onDone }: { onDone: () => void }) {
  const [token, setToken] = useState("");
  const [keep, setKeep] = useState(false);
  const check = useAction(
    async () => {
      const given = token.trim();
      // The token is tried before it is kept.
      const me = await api.get("/v1/me", { headers: { Authorization: `Bearer ${given}` } });
      const first = me.organizations[0];
      if (!first) throw new ApiError(403, "forbidden", text.signIn.noOrganization);
      signIn({ token: given, kind: given.startsWith("eyJ") ? "session" : "token", organizationId: first.organizationId }, { keep });
    },
    { isQuiet: true, onDone },
  );
  return (
    <form
      class="stack"
      onSubmit={(event) => {
        event.preventDefault();
        void check.run();
      }}
    >
      <Field label={text.signIn.token} hint={
          <>
            <code>{text.signIn.tokenCommand}</code> {text.signIn.tokenHint}
          </>
        } problem={check.error?.message}>
        {(ids) => (
          <input {...ids} class="input mono" type="password" name="token" autocomplete="off" placeholder={text.signIn.tokenPlaceholder} value={token} onInput={(event) => setToken(event.currentTarget.value)} />
        )}
      </Field>
      <label class="check small">
        <input type="checkbox" checked={keep} onChange={(event) => setKeep(event.currentTarget.checked)} />
        {text.signIn.keep}
      </label>
      <Button type="submit" isWide isBusy={check.isBusy} isDisabled={!token.trim()} icon={<KeyRound size={15} aria-hidden="true" />}>
        {text.signIn.useToken}
      </Button>
    </form>
  );
}
