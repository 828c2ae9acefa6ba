/** Buttons, and links that look like buttons. */

import { LoaderCircle } from "lucide-preact";
import type { ComponentChildren } from "preact";

interface Common {
  children?: ComponentChildren;
  kind?: "primary" | "danger" | "danger solid" | "quiet" | undefined;
  size?: "small" | "large" | undefined;
  icon?: ComponentChildren;
  label?: string | undefined; // for buttons that show an icon only
  isWide?: boolean | undefined;
}

export interface ButtonProps extends Common {
  onClick?: ((event: MouseEvent) => unknown) | undefined;
  type?: "button" | "submit" | undefined;
  isBusy?: boolean | undefined;
  isDisabled?: boolean | undefined;
  why?: string | undefined; // why it is disabled; shown on hover and read aloud
  popoverTarget?: string | undefined;
  isPressed?: boolean | undefined;
}

function classesOf({ kind, size, label, isWide, children }: Common): string {
  const isIcon = label !== undefined && children === undefined;
  return ["button", kind, size, isIcon && "icon", isWide && "wide"].filter(Boolean).join(" ");
}

/** A disabled button stays focusable if there is a reason, so that everybody can read the reason. */
export function Button(props: ButtonProps) {
  const { children, icon, label, onClick, type = "button", isBusy = false, isDisabled = false, why, popoverTarget, isPressed } = props;
  const isOff = isDisabled || why !== undefined;
  return (
    <button
      type={type}
      class={classesOf(props)}
      aria-label={label}
      title={why ?? label}
      aria-pressed={isPressed}
      aria-disabled={isOff && why ? true : undefined}
      aria-busy={isBusy || undefined}
      disabled={isBusy || (isOff && !why)}
      popovertarget={popoverTarget}
      onClick={(event) => (isOff ? event.preventDefault() : onClick?.(event))}
    >
      {isBusy ? <LoaderCircle size={15} class="spin" aria-hidden="true" /> : icon}
      {children}
    </button>
  );
}

interface LinkProps extends Common {
  href: string;
  isExternal?: boolean | undefined;
}

export function ButtonLink(props: LinkProps) {
  const { children, icon, href, label, isExternal = false } = props;
  const outside = isExternal ? { target: "_blank", rel: "noopener noreferrer" } : {};
  return (
    <a class={classesOf(props)} href={href} aria-label={label} title={label} {...outside}>
      {icon}
      {children}
    </a>
  );
}
