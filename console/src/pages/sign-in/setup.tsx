/** The first owner of a platform in production: the link that it prints leads here, with a token behind the hash. */

import { useLocation } from "preact-iso";
import { useState } from "preact/hooks";
import { api } from "../../api/client";
import { signIn } from "../../api/session";
import { text } from "../../text";
import { ButtonLink } from "../../ui/button";
import { Notice } from "../../ui/feedback";
import { Form, TextField, useForm } from "../../ui/form";
import { SignInShell } from "./shell";

/** Take the token out of the address bar, so that it is in no history, bookmark or screenshot. */
function takeToken(): string {
  const token = location.hash.slice(1);
  if (token) history.replaceState(null, "", location.pathname);
  return token;
}

export default function Setup() {
  const { route } = useLocation();
  const [token] = useState(takeToken);
  const form = useForm(
    { email: "", name: "" },
    (values) => api.post("/v1/auth/setup", { body: { setup_token: token, ...values } }),
    {
      onDone: (login) => {
        signIn({ token: login.access_token, kind: "session", organizationId: "" });
        route("/", true);
      },
    },
  );
  return (
    <SignInShell title={text.signIn.setupTitle} subtitle={token ? text.signIn.setupHint : undefined!}>
      {token ? (
        <Form form={form} submit={text.signIn.setupButton}>
          <TextField form={form} name="email" type="email" label={text.signIn.email} isFocused />
          <TextField form={form} name="name" label={text.signIn.personName} />
        </Form>
      ) : (
        <>
          <Notice kind="warn">{text.signIn.setupLost}</Notice>
          <ButtonLink href="/">{text.signIn.startAgain}</ButtonLink>
        </>
      )}
    </SignInShell>
  );
}
