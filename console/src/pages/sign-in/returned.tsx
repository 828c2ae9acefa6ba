/** The page that an identity provider leads back to. The first sign-in of a person asks for consent to the terms. */

import { useLocation } from "preact-iso";
import { useEffect, useRef, useState } from "preact/hooks";
import { useAction } from "../../api/actions";
import { api } from "../../api/client";
import { ApiError } from "../../api/errors";
import { signIn, takePlace } from "../../api/session";
import { text } from "../../text";
import { Button, ButtonLink } from "../../ui/button";
import { ErrorBox, Skeleton } from "../../ui/feedback";
import { finish } from "./oidc";
import { SignInShell } from "./shell";

export default function Returned() {
  const { query, route } = useLocation();
  const [idToken, setIdToken] = useState<string>();
  const [isAccepted, setAccepted] = useState(false);
  const hasRun = useRef(false);
  const login = useAction(
    async (token: string, terms: boolean) => {
      const result = await api.post("/v1/auth/social", { body: { auth_secret: token, terms_accepted: terms } });
      signIn({ token: result.access_token, kind: "session", organizationId: "" });
    },
    { isQuiet: true, onDone: () => route(takePlace(), true) },
  );
  const exchange = useAction(
    async () => {
      if (query["error"]) throw new ApiError(401, "unauthorized", text.signIn.refused(query["error_description"] ?? query["error"]));
      const token = await finish(query).catch((error: unknown) => {
        throw error instanceof ApiError ? error : new ApiError(401, "unauthorized", text.signIn.wrongState);
      });
      setIdToken(token);
      await login.run(token, false);
    },
    { isQuiet: true },
  );
  useEffect(() => {
    if (hasRun.current) return;
    hasRun.current = true;
    history.replaceState(null, "", location.pathname); // The code leaves the address bar at once.
    void exchange.run();
  }, []);
  const needsTerms = login.error !== undefined && "terms_accepted" in login.error.fields;
  const error = exchange.error ?? (needsTerms ? undefined : login.error);
  return (
    <SignInShell title={text.signIn.title}>
      {error && (
        <>
          <ErrorBox error={error} />
          <ButtonLink href="/">{text.signIn.startAgain}</ButtonLink>
        </>
      )}
      {needsTerms && idToken && (
        <form
          class="stack"
          onSubmit={(event) => {
            event.preventDefault();
            void login.run(idToken, true);
          }}
        >
          <p>{text.signIn.termsNeeded}</p>
          <label class="check">
            <input type="checkbox" checked={isAccepted} onChange={(event) => setAccepted(event.currentTarget.checked)} />
            {text.signIn.terms}
          </label>
          <Button type="submit" kind="primary" size="large" isWide isDisabled={!isAccepted} isBusy={login.isBusy}>
            {text.signIn.goOn}
          </Button>
        </form>
      )}
      {!error && !needsTerms && (
        <div role="status" class="stack">
          <p class="soft">{text.signIn.returning}</p>
          <Skeleton height={40} />
        </div>
      )}
    </SignInShell>
  );
}
