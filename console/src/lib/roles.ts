/**
 * What the signed-in person may do in the active organization. The server decides; the console only explains.
 *
 *   <Button isDisabled={!can("admin")} why={whyNot("admin")}>Delete project</Button>
 */

import { signal } from "@preact/signals";
import { text } from "../text";

export type Role = "viewer" | "member" | "admin" | "owner";

const RANKS: Record<Role, number> = { viewer: 0, member: 1, admin: 2, owner: 3 };

/** The role in the active organization; the frame sets it. */
export const role = signal<Role>("viewer");

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
