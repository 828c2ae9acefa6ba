/**
 * What the signed-in person may do in the active organization. The server decides; the console only explains.
 *
 *   <Button isDisabled={!can("admin")} why={whyNot("admin")}>Delete project</Button>
 */

import { signal } from "@preact/signals";
import { organizationId } from "../api/session";
import { text } from "../text";

export type Role = "viewer" | "member" | "admin" | "owner";

const RANKS: Record<Role, number> = { viewer: 0, member: 1, admin: 2, owner: 3 };

const KEY = "moorage.role";

/** The role in the active organization. Until the server has answered it is the one of the last visit. */
export const role = signal<Role>(lastRole());

function lastRole(): Role {
  const [organization, name] = (localStorage.getItem(KEY) ?? "").split(" ");
  return organization && organization === organizationId.peek() ? toRole(name) : "viewer";
}

/** Note the role that the server has told. */
export function setRole(next: Role): void {
  role.value = next;
  localStorage.setItem(KEY, `${organizationId.peek()} ${next}`);
}

export function can(wanted: Role): boolean {
  return RANKS[role.value] >= RANKS[wanted];
}

/** Return why a control is disabled, or undefined if it is not. */
export function whyNot(wanted: Role): string | undefined {
  return can(wanted) ? undefined : text.roles.needs(wanted, role.value);
}

export function toRole(name: string | undefined): Role {
  return name !== undefined && name in RANKS ? (name as Role) : "viewer";
}
