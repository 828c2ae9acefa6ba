/**
 * Marks that turn the direction of text (U+202E and its kin) never reach the page: a name could show itself and what
 * follows it as something else. They are drawn as �, in all text of all components. Fields keep what they contain.
 */

import { options } from "preact";

const TURNING = /[\u202a-\u202e\u2066-\u2069]/g;

export function visible(text: string): string {
  return text.replace(TURNING, "\ufffd");
}

const before = options.vnode;
options.vnode = (vnode) => {
  const text: unknown = vnode.props; // A text has no type, and itself as its props.
  if (typeof text === "string" && text.search(TURNING) >= 0) (vnode as { props: unknown }).props = visible(text);
  before?.(vnode);
};
