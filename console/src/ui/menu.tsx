/** Menus and panels that open at a button, as popovers of the browser: Esc and a click outside close them. */

import type { ComponentChildren } from "preact";
import { useId, useRef, useState } from "preact/hooks";

interface PopoverProps {
  trigger: (props: { popovertarget: string; "aria-expanded": boolean; "aria-haspopup": "menu" | "dialog" }) => ComponentChildren;
  children: (close: () => void) => ComponentChildren; // rendered while it is open
  isMenu?: boolean | undefined;
  side?: "start" | "end" | undefined;
  label: string;
}

export function Popover({ trigger, children, isMenu = true, side = "end", label }: PopoverProps) {
  const id = useId();
  const panel = useRef<HTMLDivElement>(null);
  const holder = useRef<HTMLSpanElement>(null);
  const [isOpen, setOpen] = useState(false);
  const close = () => panel.current?.hidePopover();
  const place = () => {
    const at = (holder.current!.firstElementChild ?? holder.current!).getBoundingClientRect();
    const { style } = panel.current!;
    const isBelow = at.bottom < innerHeight * 0.65;
    style.top = isBelow ? `${at.bottom + 4}px` : "auto";
    style.bottom = isBelow ? "auto" : `${innerHeight - at.top + 4}px`;
    style.left = side === "start" ? `${at.left}px` : "auto";
    style.right = side === "end" ? `${Math.max(8, document.documentElement.clientWidth - at.right)}px` : "auto";
    style.maxWidth = `min(360px, ${(side === "end" ? at.right : document.documentElement.clientWidth - at.left) - 8}px)`; // stays in the view
  };
  const move = (event: KeyboardEvent) => {
    const items = [...panel.current!.querySelectorAll<HTMLElement>(".menu-item")];
    const at = items.indexOf(document.activeElement as HTMLElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[event.key];
    if (to === undefined || !isMenu) return;
    event.preventDefault();
    items[(to + items.length) % items.length]?.focus();
  };
  return (
    <span ref={holder} style={{ display: "contents" }}>
      {trigger({ popovertarget: id, "aria-expanded": isOpen, "aria-haspopup": isMenu ? "menu" : "dialog" })}
      <div
        id={id}
        ref={panel}
        popover="auto"
        class="menu"
        role={isMenu ? "menu" : "dialog"}
        aria-label={label}
        onBeforeToggle={(event: Event) => {
          const isOpening = (event as ToggleEvent).newState === "open";
          if (isOpening) place();
          setOpen(isOpening);
        }}
        onToggle={(event: Event) => {
          if ((event as ToggleEvent).newState === "open" && isMenu) panel.current?.querySelector<HTMLElement>(".menu-item")?.focus();
        }}
        onKeyDown={move}
      >
        {isOpen && children(close)}
      </div>
    </span>
  );
}

interface ItemProps {
  children: ComponentChildren;
  icon?: ComponentChildren;
  note?: ComponentChildren;
  href?: string | undefined;
  onClick?: (() => void) | undefined;
  isDanger?: boolean | undefined;
  isChecked?: boolean | undefined;
  why?: string | undefined; // why it is disabled
  isExternal?: boolean | undefined;
}

export function MenuItem({ children, icon, note, href, onClick, isDanger, isChecked, why, isExternal }: ItemProps) {
  const inner = (
    <>
      {icon}
      <span class="cut">{children}</span>
      {note && <span class="note">{note}</span>}
    </>
  );
  const classes = `menu-item ${isDanger ? "danger" : ""}`;
  if (href && !why) {
    const outside = isExternal ? { target: "_blank", rel: "noopener noreferrer" } : {};
    return (
      <a class={classes} role="menuitem" href={href} onClick={onClick} {...outside}>
        {inner}
      </a>
    );
  }
  const role = isChecked === undefined ? "menuitem" : "menuitemradio";
  return (
    <button type="button" class={classes} role={role} aria-checked={isChecked} aria-disabled={why ? true : undefined} title={why} onClick={() => why === undefined && onClick?.()}>
      {inner}
    </button>
  );
}

export function MenuGap() {
  return <div class="menu-gap" role="separator" />;
}
