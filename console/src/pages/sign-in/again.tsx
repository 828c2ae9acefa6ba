/** Asks to sign in again in the middle of work. The page below stays as it is, with all that was typed. */

import { useEffect, useId, useRef } from "preact/hooks";
import { signOut } from "../../api/session";
import { text } from "../../text";
import { Button } from "../../ui/button";
import { Ways } from "./sign-in";

export default function SignInAgain() {
  const element = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const before = document.activeElement;
    element.current!.showModal();
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog ref={element} aria-labelledby={id} onCancel={(event) => event.preventDefault()}>
      <header class="dialog-head">
        <h2 id={id}>{text.frame.expired}</h2>
      </header>
      <div class="dialog-body stack">
        <p class="soft">{text.signIn.againHint}</p>
        <Ways isHere onDone={() => undefined} />
      </div>
      <footer class="dialog-foot">
        <Button kind="quiet" onClick={signOut}>
          {text.frame.signOut}
        </Button>
      </footer>
    </dialog>
  );
}
