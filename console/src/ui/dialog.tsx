/** Dialogs of the browser, and the confirmation of acts that destroy something. */

import { X } from "lucide-preact";
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { useAction } from "../api/actions";
import { text } from "../text";
import { Button } from "./button";
import { ErrorBox } from "./feedback";
import { Field } from "./form";

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  foot?: ComponentChildren;
  isLarge?: boolean | undefined;
}

/** Rendered while it is open; Esc and a click outside close it. */
export function Dialog({ title, onClose, children, foot, isLarge = false }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const dialog = element.current!;
    const before = document.activeElement;
    dialog.showModal();
    return () => {
      dialog.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={element}
      class={isLarge ? "large" : ""}
      aria-labelledby={id}
      onCancel={(event) => (event.preventDefault(), onClose())}
      onMouseDown={(event) => event.target === element.current && onClose()}
    >
      <header class="dialog-head">
        <h2 id={id}>{title}</h2>
        <Button kind="quiet" size="small" label={text.common.close} onClick={onClose} icon={<X size={16} aria-hidden="true" />} />
      </header>
      <div class="dialog-body">{children}</div>
      {foot && <footer class="dialog-foot">{foot}</footer>}
    </dialog>
  );
}

interface ConfirmProps {
  title: string;
  button: string; // names the act
  children: ComponentChildren; // what happens
  act: () => Promise<unknown>;
  onClose: () => void;
  done?: string | undefined;
  refreshes?: string[] | undefined;
  onDone?: (() => void) | undefined;
}

/** Asks before an act that changes something for others, and can be undone. */
export function Confirm({ title, button, children, act, onClose, done, refreshes, onDone }: ConfirmProps) {
  const action = useAction(act, { done, refreshes, isQuiet: true, onDone: () => (onClose(), onDone?.()) });
  return (
    <Dialog
      title={title}
      onClose={onClose}
      foot={
        <>
          <Button onClick={onClose}>{text.common.cancel}</Button>
          <Button kind="primary" isBusy={action.isBusy} onClick={() => action.run()}>
            {button}
          </Button>
        </>
      }
    >
      {children}
      {action.error && <ErrorBox error={action.error} />}
    </Dialog>
  );
}

/** Asks for the name before something is destroyed; says what is lost and what is kept. */
export function ConfirmDanger({ name, ...props }: ConfirmProps & { name: string }) {
  const { title, button, children, act, onClose, done, refreshes, onDone } = props;
  const [typed, setTyped] = useState("");
  const action = useAction(act, { done, refreshes, isQuiet: true, onDone: () => (onClose(), onDone?.()) });
  const isSame = typed.trim() === name;
  return (
    <Dialog
      title={title}
      onClose={onClose}
      foot={
        <>
          <Button onClick={onClose}>{text.common.cancel}</Button>
          <Button kind="danger solid" isDisabled={!isSame} isBusy={action.isBusy} onClick={() => action.run()}>
            {button}
          </Button>
        </>
      }
    >
      {children}
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (isSame) void action.run();
        }}
      >
        <Field label={text.common.typeName(name)}>
          {(ids) => <input {...ids} class="input mono" value={typed} autofocus autocomplete="off" spellcheck={false} onInput={(event) => setTyped(event.currentTarget.value)} />}
        </Field>
      </form>
      {action.error && <ErrorBox error={action.error} />}
    </Dialog>
  );
}
